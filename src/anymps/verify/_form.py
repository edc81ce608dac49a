"""The format of a file of answers, checked before anything in it is used: docs/schema/mac-answers-1.json in Python."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any, Final

from anymps.verify._kinds import KINDS

MOST_CASES: Final = 100_000
MOST_SAMPLES: Final = 1000
MOST_TEXT: Final = 20_000
MOST_VALUES: Final = 1 << 20
MOST_SIZE: Final = 1 << 48
DOES: Final = ("computes", "refuses", "crashes", "hangs", "unasked")

ITEM_SIZES: Final = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of an element, by the dtype's name."""


class _Wrong(Exception):
    """Where the document departs from its form."""


def fault_of(document: dict[str, Any]) -> str:
    """What is wrong with a document of the right format and version; empty if nothing is."""
    try:
        _document(document)
    except _Wrong as wrong:
        return str(wrong)
    return ""


def _document(document: dict[str, Any]) -> None:
    _need(isinstance(document.get("virtual"), bool), "virtual is neither true nor false")
    _text(document.get("made"), "made")
    machine = _mapping(document.get("machine"), "machine", 50)
    for name, value in machine.items():
        _scalar(value, f"machine.{name}")
    for name in ("chip", "macos", "torch"):
        _text(machine.get(name), f"machine.{name}")
    for name, about in _mapping(document.get("kinds"), "kinds", 50).items():
        for key, value in _mapping(about, f"kinds.{name}", 50).items():
            _scalar(value, f"kinds.{name}.{key}")
    for kind, cases in _mapping(document.get("answers"), "answers", 50).items():
        _need(kind in KINDS, f"it has answers of an unknown kind: {kind[:40]!r}")
        for name, answer in _mapping(cases, f"answers.{kind}", MOST_CASES).items():
            _answer(answer, f"answers.{kind}.{name[:80]}")


def _answer(answer: Any, where: str) -> None:
    """The fields of one answer, or of one of its samples."""
    for key, value in _mapping(answer, where, 50).items():
        check = _FIELDS.get(key)
        _need(check is not None, f"{where} has an unknown field: {key[:40]!r}")
        assert check is not None
        check(value, f"{where}.{key}")


def _samples(value: Any, where: str) -> None:
    for number, one in enumerate(_list(value, where, MOST_SAMPLES)):
        _answer(one, f"{where}[{number}]")


def _results(value: Any, where: str) -> None:
    for number, one in enumerate(_list(value, where, MOST_SAMPLES)):
        here = f"{where}[{number}]"
        result = _mapping(one, here, 20)
        if "python" in result:
            _need(set(result) == {"python", "value"}, f"{here} has fields other than python and value")
            _text(result["python"], here)
            _text(result["value"], here)
            continue
        _need(set(result) <= _OF_A_TENSOR, f"{here} has an unknown field")
        _need(result.get("dtype") in ITEM_SIZES, f"{here} has an unknown dtype")
        _sizes(result.get("shape"), f"{here}.shape")
        _sizes(result.get("strides", []), f"{here}.strides")
        for name in ("digest", "device", "layout"):
            _text(result.get(name, ""), f"{here}.{name}")
        _values(result, here)


_OF_A_TENSOR: Final = {"dtype", "shape", "strides", "digest", "device", "layout", "values"}


def _values(result: dict[str, Any], where: str) -> None:
    if "values" not in result:
        return
    _need(isinstance(result["values"], str) and len(result["values"]) <= MOST_VALUES, f"{where} has too many values")
    try:
        raw = base64.b64decode(result["values"], validate=True)
    except (binascii.Error, ValueError):
        raise _Wrong(f"{where} has values that are not valid base64") from None
    size = ITEM_SIZES[result["dtype"]]
    fits = len(raw) % size == 0 and len(raw) // size <= math.prod(result["shape"])
    _need(fits, f"{where} has values that do not fit its shape")


def _shapes(value: Any, where: str) -> None:
    for one in _list(value, where, MOST_SAMPLES):
        _sizes(one, where)


def _sizes(value: Any, where: str) -> None:
    for one in _list(value, where, 64):
        _need(isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= MOST_SIZE, f"{where} is not a size")


def _rows(value: Any, where: str) -> None:
    for one in _list(value, where, 10_000):
        for part in _list(one, where, 100):
            _scalar(part, where)


def _names(value: Any, where: str) -> None:
    for one in _list(value, where, 10_000):
        _text(one, where)


def _does(value: Any, where: str) -> None:
    _need(value in DOES, f"{where} is not one of {', '.join(DOES)}")


def _truth(value: Any, where: str) -> None:
    _need(isinstance(value, bool), f"{where} is neither true nor false")


def _number(value: Any, where: str) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
    _need(fits, f"{where} is not a number")


def _text(value: Any, where: str) -> None:
    _need(isinstance(value, str) and len(value) <= MOST_TEXT, f"{where} is not a string, or is too long")


def _scalar(value: Any, where: str) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        _number(value, where)
    elif not isinstance(value, bool) and value is not None:
        _text(value, where)


def _mapping(value: Any, where: str, most: int) -> dict[str, Any]:
    _need(isinstance(value, dict) and len(value) <= most, f"{where} is not an object, or is too large")
    return dict(value)


def _list(value: Any, where: str, most: int) -> list[Any]:
    _need(isinstance(value, list) and len(value) <= most, f"{where} is not an array, or is too long")
    return list(value)


def _need(holds: bool, problem: str) -> None:
    if not holds:
        raise _Wrong(problem)


_FIELDS: Final[dict[str, Callable[[Any, str], None]]] = {
    "does": _does,
    "samples": _samples,
    "results": _results,
    "error": _text,
    "text": _text,
    "warns": _names,
    "inputs": _text,
    "shapes": _shapes,
    "random": _truth,
    "operator": _text,
    "waits": _truth,
    "seconds": _number,
    "queue": _number,
    "spread": _number,
    "paged": _truth,
    "mode": _text,
    "shows": _truth,
    "sure": _truth,
    "title": _text,
    "rows": _rows,
    "names": _names,
    "value": _text,
}
"""What an answer may hold; docs/schema/mac-answers-1.json says what each is."""
