"""Which environment variables of the MPS backend each release of torch reads.

Sources: C strings of the macOS arm64 wheels of torch 2.11 to 2.15; pytorch, docs/source/mps_environment_variables.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

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
