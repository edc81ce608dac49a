"""The format of a file of answers, checked before anything in it is used: docs/schema/mac-answers-2.json in Python."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any, Final

from anymps.verify._kinds import KINDS

MOST_TEXT: Final = 20_000
MOST_SIZE: Final = 1 << 48
MOST_DIMENSIONS: Final = 64

ITEM_SIZES: Final = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of an element, by the dtype's name."""

Check = Callable[[Any, str], None]


class _Wrong(Exception):
    """Where the document departs from its form."""


def fault_of(document: dict[str, Any]) -> str:
    """What is wrong with a document of the right format and version; empty if nothing is."""
    try:
        _need(isinstance(document.get("virtual"), bool), "virtual is neither true nor false")
        _text(document.get("made"), "made")
        machine: Any = document.get("machine")
        _each(machine, "machine", _scalar)
        for name in ("chip", "macos", "torch"):
            _text(machine.get(name), f"machine.{name}")
        _each(document.get("kinds"), "kinds", _about)
        _each(document.get("answers"), "answers", _kind)
    except _Wrong as wrong:
        return str(wrong)
    return ""


def _about(value: Any, where: str) -> None:
    fits = isinstance(value, dict) and set(value) == {"cases", "note"}
    _need(fits, f"{where} has fields other than cases and note")
    _size(value["cases"], f"{where}.cases")
    _text(value["note"], f"{where}.note")


def _kind(value: Any, where: str) -> None:
    name = where.partition(".")[2]
    _need(name in KINDS, f"it has answers of an unknown kind: {name[:40]!r}")
    _each(value, where, _answer)


def _answer(value: Any, where: str) -> None:
    _fields(value, where, {**_OF_A_SAMPLE, "samples": _list_of(_sample)})


def _sample(value: Any, where: str) -> None:
    _fields(value, where, _OF_A_SAMPLE)


def _result(value: Any, where: str) -> None:
    if isinstance(value, dict) and "python" in value:
        _need(set(value) == {"python", "value"}, f"{where} has fields other than python and value")
        _fields(value, where, {"python": _text, "value": _text})
        return
    _fields(value, where, _OF_A_TENSOR)
    _need("dtype" in value and "shape" in value, f"{where} has no dtype or no shape")
    size, held = ITEM_SIZES[value["dtype"]], len(_decoded(value.get("values", ""), where))
    fits = held % size == 0 and held // size <= math.prod(value["shape"])
    _need(fits, f"{where} has values that do not fit its shape")


def _decoded(values: str, where: str) -> bytes:
    try:
        return base64.b64decode(values, validate=True)
    except (binascii.Error, ValueError):
        raise _Wrong(f"{where} has values that are not valid base64") from None


def _fields(value: Any, where: str, checks: dict[str, Check]) -> None:
    _need(isinstance(value, dict), f"{where} is not an object")
    for key, one in value.items():
        _need(key in checks, f"{where} has an unknown field: {key[:40]!r}")
        checks[key](one, f"{where}.{key}")


def _each(value: Any, where: str, check: Check) -> None:
    _need(isinstance(value, dict), f"{where} is not an object")
    for key, one in value.items():
        check(one, f"{where}.{key[:80]}")


def _list_of(check: Check) -> Check:
    def whole(value: Any, where: str) -> None:
        _need(isinstance(value, list), f"{where} is not an array")
        for number, one in enumerate(value):
            check(one, f"{where}[{number}]")

    return whole


def _one_of(*words: str) -> Check:
    def check(value: Any, where: str) -> None:
        _need(isinstance(value, str) and value in words, f"{where} is not one of {', '.join(words)}")

    return check


def _sizes(value: Any, where: str) -> None:
    _list_of(_size)(value, where)
    _need(len(value) <= MOST_DIMENSIONS, f"{where} has more than {MOST_DIMENSIONS} dimensions")


def _size(value: Any, where: str) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_SIZE
    _need(fits, f"{where} is not a size")


def _text(value: Any, where: str) -> None:
    _need(isinstance(value, str) and len(value) <= MOST_TEXT, f"{where} is not a string, or is too long")


def _values(value: Any, where: str) -> None:
    _need(isinstance(value, str), f"{where} is not a string")


def _scalar(value: Any, where: str) -> None:
    if not isinstance(value, int | float):
        _text(value, where)


def _need(holds: bool, problem: str) -> None:
    if not holds:
        raise _Wrong(problem)


_OF_A_TENSOR: Final[dict[str, Check]] = {
    "dtype": _one_of(*ITEM_SIZES),
    "shape": _sizes,
    "strides": _sizes,
    "layout": _text,
    "device": _text,
    "digest": _text,
    "values": _values,
}
_OF_A_SAMPLE: Final[dict[str, Check]] = {
    "does": _one_of("computes", "refuses", "crashes", "hangs", "unasked"),
    "results": _list_of(_result),
    "value": _text,
    "error": _text,
    "text": _text,
    "warns": _list_of(_text),
    "inputs": _text,
    "operator": _text,
    "reports": _one_of("no", "may", "sure"),
}
"""What an answer may hold beside its samples; docs/schema/mac-answers-2.json says what each is."""
