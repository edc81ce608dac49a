"""The format of a file of answers, checked before anything in it is used: docs/schema/mac-answers-2.json in Python."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Mapping
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


def wrong_place(document: dict[str, Any]) -> str:
    """The first place where a document of the right format and version has another form; empty if it has none."""
    return next(_wrong_places(document), "")


def _wrong_places(document: dict[str, Any]) -> Iterator[str]:
    for name, form in _DOCUMENT.items():
        yield from _misfits(document.get(name), form, name)
    for name in ("chip", "macos", "torch"):
        yield from _misfits(document["machine"].get(name), _is_text, f"machine.{name}")
    for kind, about in document["kinds"].items():
        if set(about) != {"cases", "note"}:
            yield f"kinds.{kind[:80]}"
    for kind, answers in document["answers"].items():
        if kind not in KINDS:
            yield f"answers.{kind[:80]}"
        for case, answer in answers.items():
            for sample in (answer, *answer.get("samples", ())):
                for number, result in enumerate(sample.get("results", ())):
                    if not _fits_itself(result):
                        yield f"answers.{kind}.{case[:80]}.results[{number}]"


def _misfits(value: Any, form: Any, where: str) -> Iterator[str]:
    """Where a value has not its form: a list of one form, an object of forms, or a test of one value.

    An object's form has its fields, or `*` for any.
    """
    if isinstance(form, dict) and isinstance(value, dict):
        for key, one in value.items():
            yield from _misfits(one, form.get(key, form.get("*")), f"{where}.{key[:80]}")
    elif isinstance(form, list) and isinstance(value, list):
        for number, one in enumerate(value):
            yield from _misfits(one, form[0], f"{where}[{number}]")
    elif not callable(form) or not form(value):
        yield where


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_SIZE


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT


def _is_one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in words


def _fits_itself(result: Mapping[str, Any]) -> bool:
    """Whether the values of a result fit its dtype and shape."""
    if "python" in result:
        return set(result) == {"python", "value"}
    if "dtype" not in result or len(result.get("shape", [0] * 100)) > MOST_DIMENSIONS:
        return False
    try:
        held = len(base64.b64decode(result.get("values", ""), validate=True))
    except (binascii.Error, ValueError):
        return False
    size = ITEM_SIZES[result["dtype"]]
    return held % size == 0 and held // size <= math.prod(result["shape"])


_RESULT: Final = {
    "dtype": _is_one_of(*ITEM_SIZES),
    "shape": [_is_size],
    "strides": [_is_size],
    "layout": _is_text,
    "device": _is_text,
    "digest": _is_text,
    "values": lambda value: isinstance(value, str),
    "python": _is_text,
    "value": _is_text,
}
SAMPLE: Final = {
    "does": _is_one_of("computes", "refuses", "crashes", "hangs", "unasked"),
    "results": [_RESULT],
    "value": _is_text,
    "error": _is_text,
    "text": _is_text,
    "warns": [_is_text],
    "inputs": _is_text,
    "operator": _is_text,
    "reports": _is_one_of("no", "may", "sure"),
}
"""What an answer may hold beside its samples; docs/schema/mac-answers-2.json says what each is."""
_DOCUMENT: Final = {
    "virtual": _is_flag,
    "made": _is_text,
    "machine": {"*": lambda value: isinstance(value, int | float) or _is_text(value)},
    "kinds": {"*": {"cases": _is_size, "note": _is_text}},
    "answers": {"*": {"*": {**SAMPLE, "samples": [SAMPLE]}}},
}
