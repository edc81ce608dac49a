"""The environment variables of the backend: which of them a release of torch reads, and what the watermarks mean.

Sources: C strings of the macOS arm64 wheels of torch 2.7 to 2.15, and docs/source/mps_environment_variables.md of
pytorch, for the names; aten/src/ATen/mps/MPSAllocator.mm and MPSAllocator.h, torch 2.7 to 2.15, for the two watermark
ratios. Their text is read with C's strtod, once in a process, at its first allocation.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from anymps.rules._readings import Reading

READING: Final = Reading("watermarks", "MPSAllocator.mm and MPSAllocator.h", (2, 7), (2, 15))

READ_SINCE: Final[Mapping[str, tuple[int, int]]] = {
    "PYTORCH_DEBUG_MPS_ALLOCATOR": (2, 7),
    "PYTORCH_ENABLE_MPS_FALLBACK": (2, 7),
    "PYTORCH_MPS_DISABLE_PREFILL_ATTENTION": (2, 13),
    "PYTORCH_MPS_FAST_MATH": (2, 7),
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO": (2, 7),
    "PYTORCH_MPS_LOG_PROFILE_INFO": (2, 7),
    "PYTORCH_MPS_LOW_WATERMARK_RATIO": (2, 7),
    "PYTORCH_MPS_METAL_VERSION": (2, 15),
    "PYTORCH_MPS_PREFER_METAL": (2, 7),
    "PYTORCH_MPS_TRACE_SIGNPOSTS": (2, 7),
}
"""By name, the release from which on it is read."""

_NAME: Final = re.compile(r"PYTORCH_(?:\w+_)?MPS_\w+")
_ALIKE: Final = 0.65  # of two names, as difflib counts, without the words that most of them have


def unread(name: str, release: tuple[int, int] | None) -> str:
    """Why torch does not read a variable of the backend's, as the end of a sentence; empty for any other.

    None: an unknown release.
    """
    if _NAME.fullmatch(name) is None:
        return ""
    since = READ_SINCE.get(name)
    if since is None:
        return "no release of torch up to 2.15 reads this variable"
    return f"torch reads it from {since[0]}.{since[1]} on" if release is not None and release < since else ""


def nearest_variable(name: str) -> str:
    """The variable that a name is most like, `PYTORCH_ENABLE_MPS_FALLBACK` of `PYTORCH_MPS_FALLBACK`, or none."""
    names = {_words(known): known for known in READ_SINCE}
    found = difflib.get_close_matches(_words(name), names, 1, _ALIKE)
    return names[found[0]] if found else ""


def _words(name: str) -> str:
    return "_".join(sorted(set(name.upper().split("_")) - {"PYTORCH", "MPS"}))


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
