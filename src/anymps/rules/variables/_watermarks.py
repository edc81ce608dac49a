"""The two watermark ratios of the allocator as the environment sets them, and which settings are mistakes.

Source: aten/src/ATen/mps/MPSAllocator.mm and MPSAllocator.h, torch 2.7 to 2.15. Text is read with C's strtod, once in a
process, at its first allocation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from anymps.rules._readings import Reading

READING: Final = Reading("watermarks", "MPSAllocator.mm and MPSAllocator.h", (2, 7), (2, 15))

HIGH_WATERMARK: Final = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
LOW_WATERMARK: Final = "PYTORCH_MPS_LOW_WATERMARK_RATIO"
WATERMARKS: Final[Mapping[str, float]] = {HIGH_WATERMARK: 1.7, LOW_WATERMARK: 1.4}
"""The ratio of each variable where it is not set: a share of Metal's recommended working set."""

_LARGEST_RATIO = 2.0

# C's strtod as far as people write it: the longest start of the text that is a number.
_FLOAT = re.compile(r"\s*[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE)


def watermark_ratio(name: str, environment: Mapping[str, str]) -> float:
    """The ratio that the allocator reads from one of `WATERMARKS`, its default if it is not set; 0 is no limit."""
    return _float(environment[name]) if name in environment else WATERMARKS[name]


def explain_watermark(name: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """What a watermark variable that is set does, and whether that is a mistake: something else than it seems to do, or
    an error of the allocator's constructor at the first allocation.
    """
    text = environment[name]
    ratio = _float(text)
    if not _FLOAT.match(text):
        return "not a number: C's strtod makes 0 of it, so the limit is off", True
    high, low = watermark_ratio(HIGH_WATERMARK, environment), watermark_ratio(LOW_WATERMARK, environment)
    bound = high or _LARGEST_RATIO
    if name == HIGH_WATERMARK and not 0 <= high <= _LARGEST_RATIO:
        return f"the first allocation raises RuntimeError: invalid high watermark ratio {high:g}", True
    if not 0 <= low <= bound and (name == LOW_WATERMARK or LOW_WATERMARK not in environment):
        advice = f"; set {LOW_WATERMARK} to {high:g} or less as well" if name == HIGH_WATERMARK else ""
        return f"the first allocation raises RuntimeError: invalid low watermark ratio {low:g}{advice}", True
    if ratio == 0:
        what = (
            "no upper limit: macOS may run out of memory"
            if name == HIGH_WATERMARK
            else "no collection before the upper limit"
        )
        return what, False
    what = "out of memory above" if name == HIGH_WATERMARK else "unused memory is given back above"
    return f"{what} {ratio:g} times the recommended working set", False


def _float(text: str) -> float:
    match = _FLOAT.match(text)
    return float(match[0]) if match else 0.0
