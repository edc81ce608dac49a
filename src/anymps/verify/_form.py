"""The format of a file of answers, checked before anything in it is used: docs/schema/mac-answers-2.json in Python."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
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


class _Wrong(Exception):
    """Where the document departs from its form."""


def fault_of(document: dict[str, Any]) -> str:
    """What is wrong with a document of the right format and version; empty if nothing is."""
    try:
        for name, form in _DOCUMENT.items():
            _check(document.get(name), form, name)
        for name in ("chip", "macos", "torch"):
            _check(document["machine"].get(name), _TEXT, f"machine.{name}")
        for kind, about in document["kinds"].items():
            _need(set(about) == {"cases", "note"}, f"kinds.{kind[:80]} has fields other than cases and note")
        for kind, answers in document["answers"].items():
            _need(kind in KINDS, f"it has answers of an unknown kind: {kind[:40]!r}")
            for case, answer in answers.items():
                for sample in (answer, *answer.get("samples", ())):
                    _check_results(sample, f"answers.{kind}.{case[:80]}")
    except _Wrong as wrong:
        return str(wrong)
    return ""


def _check(value: Any, form: Any, where: str) -> None:
    """Raise unless a value has a form: words of which it is one, a list of one form, an object of forms, or one value.

    An object's form has its fields, or `*` for any.
    """
    if isinstance(form, dict):
        _need(isinstance(value, dict), f"{where} is not an object")
        for key, one in value.items():
            _need(key in form or "*" in form, f"{where} has an unknown field: {key[:40]!r}")
            _check(one, form.get(key, form.get("*")), f"{where}.{key[:80]}")
    elif isinstance(form, list):
        _need(isinstance(value, list), f"{where} is not an array")
        for number, one in enumerate(value):
            _check(one, form[0], f"{where}[{number}]")
    elif isinstance(form, tuple):
        _need(isinstance(value, str) and value in form, f"{where} is not one of {', '.join(form)}")
    else:
        _need(_fits(value, form), f"{where} {form}")


_FLAG: Final = "is neither true nor false"
_SIZE: Final = "is not a size"
_TEXT: Final = "is not a string, or is too long"
_LONG_TEXT: Final = "is not a string"
_NUMBER_OR_TEXT: Final = "is neither a number nor a string, or is too long"
"""Forms of one value, by what is said of any other."""


def _fits(value: Any, form: str) -> bool:
    if form == _FLAG:
        return isinstance(value, bool)
    if form == _SIZE:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_SIZE
    is_number = form == _NUMBER_OR_TEXT and isinstance(value, int | float)
    return is_number or (isinstance(value, str) and (form == _LONG_TEXT or len(value) <= MOST_TEXT))


def _check_results(sample: Mapping[str, Any], where: str) -> None:
    """Values fit the sizes of their result."""
    for number, result in enumerate(sample.get("results", ())):
        here = f"{where}.results[{number}]"
        if "python" in result:
            _need(set(result) == {"python", "value"}, f"{here} has fields other than python and value")
            continue
        _need("dtype" in result and "shape" in result, f"{here} has no dtype or no shape")
        _need(len(result["shape"]) <= MOST_DIMENSIONS, f"{here}.shape has more than {MOST_DIMENSIONS} dimensions")
        try:
            held = len(base64.b64decode(result.get("values", ""), validate=True))
        except (binascii.Error, ValueError):
            raise _Wrong(f"{here} has values that are not valid base64") from None
        size = ITEM_SIZES[result["dtype"]]
        fits = held % size == 0 and held // size <= math.prod(result["shape"])
        _need(fits, f"{here} has values that do not fit its shape")


def _need(holds: bool, problem: str) -> None:
    if not holds:
        raise _Wrong(problem)


_RESULT: Final = {
    "dtype": tuple(ITEM_SIZES),
    "shape": [_SIZE],
    "strides": [_SIZE],
    "layout": _TEXT,
    "device": _TEXT,
    "digest": _TEXT,
    "values": _LONG_TEXT,
    "python": _TEXT,
    "value": _TEXT,
}
SAMPLE: Final = {
    "does": ("computes", "refuses", "crashes", "hangs", "unasked"),
    "results": [_RESULT],
    "value": _TEXT,
    "error": _TEXT,
    "text": _TEXT,
    "warns": [_TEXT],
    "inputs": _TEXT,
    "operator": _TEXT,
    "reports": ("no", "may", "sure"),
}
"""What an answer may hold beside its samples; docs/schema/mac-answers-2.json says what each is."""
_DOCUMENT: Final = {
    "virtual": _FLAG,
    "made": _TEXT,
    "machine": {"*": _NUMBER_OR_TEXT},
    "kinds": {"*": {"cases": _SIZE, "note": _TEXT}},
    "answers": {"*": {"*": {**SAMPLE, "samples": [SAMPLE]}}},
}
