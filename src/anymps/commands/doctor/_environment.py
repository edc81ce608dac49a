"""What the environment variables of the MPS backend mean as they are set, and which values are mistakes.

Sources: C strings of the macOS arm64 wheels of torch 2.11 to 2.15; pytorch, docs/source/mps_environment_variables.md;
aten/src/ATen/mps/MPSAllocator.mm (watermarks), MPSFallback.mm (fallback), MPSProfiler.h (profiler).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from anymps.rules.variables import WATERMARKS, explain_watermark, nearest_variable, unread

# Plain descriptions of those that need no judgement: name -> meaning.
_MEANINGS = {
    "MTL_CAPTURE_ENABLED": "Metal allows GPU traces (read when the process starts)",
    "PYTORCH_BINARY_FORCE_FLAVOR": "developer switch: one flavour of the binary kernels (torch 2.13 or newer)",
    "PYTORCH_UNARY_FORCE_FLAVOR": "developer switch: one flavour of the unary kernels (torch 2.13 or newer)",
    "PYTORCH_MPS_DISABLE_PREFILL_ATTENTION": "no Metal prefill kernel in attention (torch 2.13 or newer)",
    "PYTORCH_MPS_LOG_PROFILE_INFO": "the backend's own profiler prints to stderr",
    "PYTORCH_MPS_METAL_VERSION": "caps the Metal language version (read by torch 2.15 only)",
    "PYTORCH_MPS_TRACE_SIGNPOSTS": "the backend's own profiler sends signposts to Instruments",
    "TORCH_CPP_LOG_LEVEL": "what torch's C++ side logs",
}
_SWITCHES = {
    "PYTORCH_MPS_FAST_MATH": "fast math in Metal code that is compiled at run time",
    "PYTORCH_MPS_PREFER_METAL": "matrix products by PyTorch's Metal kernels in place of MPSGraph",
}
_ALLOCATOR_BITS = {1: "limits", 2: "allocations", 4: "recycling", 8: "releases", 16: "large pools only"}


@dataclass(frozen=True)
class Note:
    """What one variable does; ``wrong`` marks a setting that does something else than it seems to, or fails."""

    name: str
    value: str
    text: str
    wrong: bool = False


def explain(environment: Mapping[str, str], release: tuple[int, int] | None) -> list[Note]:
    """Explain each variable that is set, for a torch release (None: unknown), in the order given."""
    return [_explain(name, value, environment, release) for name, value in environment.items()]


def _explain(name: str, value: str, environment: Mapping[str, str], release: tuple[int, int] | None) -> Note:
    if name in WATERMARKS:
        return Note(name, value, *explain_watermark(name, environment))
    if name == "PYTORCH_ENABLE_MPS_FALLBACK":
        return Note(name, value, *_fallback(value))
    if name == "PYTORCH_DEBUG_MPS_ALLOCATOR":
        return Note(name, value, *_allocator_debug(value, environment, release))
    if name in _SWITCHES:
        on = _integer(value) != 0
        return Note(name, value, f"{_SWITCHES[name]}: {'on' if on else 'off'}")
    if name == "PYTORCH_MPS_METAL_VERSION" and not re.fullmatch(r"\d+\.\d+", value):
        return Note(name, value, "not a version such as 3.2: torch 2.15 warns and ignores it", True)
    if name in _MEANINGS:
        return Note(name, value, _MEANINGS[name])
    if name.startswith("ANYMPS_"):
        return Note(name, value, "a setting of anymps")
    meant = nearest_variable(name)
    return Note(name, value, f"{unread(name, release)}{f'; did you mean {meant}?' if meant else ''}", True)


def _fallback(value: str) -> tuple[str, bool]:
    """Explain the fallback switch, which C++ reads with std::stoi when torch is loaded."""
    if not re.match(r"\s*[+-]?\d", value):
        return "not a number: std::stoi throws when torch is loaded; use 1 or 0", True
    if _integer(value) == 0:
        return "operators without an MPS kernel raise NotImplementedError", False
    return "operators without an MPS kernel run on the CPU (must be set before torch is imported)", False


def _allocator_debug(value: str, environment: Mapping[str, str], release: tuple[int, int] | None) -> tuple[str, bool]:
    bits = _integer(value)
    words = [word for bit, word in _ALLOCATOR_BITS.items() if bits & bit]
    if not words:
        return "the allocator logs nothing", False
    text = f"the allocator logs: {', '.join(words)}"
    # From 2.13 it goes through c10's LOG(INFO), which is hidden by default.
    if release is not None and release >= (2, 13) and environment.get("TORCH_CPP_LOG_LEVEL", "").upper() != "INFO":
        return f"{text}; torch {release[0]}.{release[1]} shows it only with TORCH_CPP_LOG_LEVEL=INFO", True
    return text, False


def _integer(text: str) -> int:
    """The number that C's strtol reads, hexadecimal and octal ones too; 0 for none."""
    return int(ctypes.CDLL(None).strtol(os.fsencode(text), None, 0))
