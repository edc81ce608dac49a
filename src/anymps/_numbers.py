"""Reads numbers in untrusted text: the result has a size that can be computed with, however many digits there are.

Python refuses to convert more than 4,300 digits, and no float has 400. Real sizes, counts and times have at most 18.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

MOST: Final = 10**18
"""What larger whole numbers in texts are read as."""
_JSON_DIGITS: Final = 20  # those of 2**64, a seed or an address; a minus sign counts


def digits(text: str) -> int:
    """The number that decimal digits are, at most `MOST`."""
    significant = text.lstrip("0")
    return int(significant or "0") if len(significant) <= 18 else MOST


def whole(text: str) -> int | None:
    """The number of 0 or more that a text is, at most `MOST`; None for any other text."""
    return digits(text) if text.isdecimal() else None


def read_json(text: str | bytes, *, most: int = 1_000_000, **options: Any) -> Any:
    """What a JSON text says; `options` are those of `json.loads`.

    Raises ValueError for no JSON, for NaN and infinities, for a number that is none that was meant, and for a text of
    more than about `most` values, each of which may take 250 bytes. Raises RecursionError for one nested too deep.
    """
    marks: tuple[Any, ...] = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    if len(text) > most and sum(map(text.count, marks)) > most:
        raise ValueError(f"more than {most:,} values")
    return json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_real, **options)


def _whole(text: str) -> int:
    if len(text) > _JSON_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number
