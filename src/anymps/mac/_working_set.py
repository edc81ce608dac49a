"""How much memory Metal offers the GPU of a Mac: the working set and the largest buffer, by memory size and macOS.

Metal's `recommendedMaxWorkingSetSize` is a fraction of the memory. The fraction depends on the operating system, not on
the chip: the rule of macOS 26 was seen on M1 to M5. The values of this module equal every exact public reading known
to us, byte for byte: `mx.device_info` and Metal dumps of 16 GB (macOS 13.7), 24 GB, 32 GB (26.4), 48 GB, 64 GB, 128 GB
and 256 GB machines, pytorch issue 189215 (24 GB), llama.cpp pull request 16634, and turboquant-mlx issue 14.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

NEWEST_MACOS: Final = 26
"""The newest macOS whose working set somebody has published."""
PAGE: Final = 16384
"""Bytes of a page on Apple silicon; every known reading is a multiple of it."""

_TWO_THIRDS: Final = Fraction(0.666666686534881591796875)  # 2/3 in float32: 24 GB reads one page above 16 GiB

# Monterey to Sequoia. 256 and 512 GB: M3 Ultra dumps (208 and 464 GiB).
_FRACTION_UP_TO_15: Final[dict[int, Fraction]] = {
    **dict.fromkeys((8, 16, 18, 24, 32), _TWO_THIRDS),
    **{size: Fraction(3, 4) for size in (36, 48, 64, 96, 128, 192)},
    256: Fraction(13, 16),
    512: Fraction(29, 32),
}

# Tahoe. 8 GB: every dump, 2026 ones included, still shows 2/3, but none of them names its macOS.
_FRACTION_26: Final[dict[int, Fraction]] = {
    8: _TWO_THIRDS,
    **{size: Fraction(74, 100) for size in (16, 18, 24)},
    **{size: Fraction(78, 100) for size in (32, 36, 48)},
    **{size: Fraction(81, 100) for size in (64, 96)},
    **{size: Fraction(84, 100) for size in (128, 192)},
    256: Fraction(87, 100),
    512: Fraction(90, 100),
}

_UNCONFIRMED_26: Final[dict[int, str]] = {
    8: "8 GB on macOS 26: no reading names its macOS",
    192: "192 GB on macOS 26: taken from 128 GB",
    256: "256 GB on macOS 26: one table, its unit is ambiguous (Rapid-MLX pull request 183)",
    512: "512 GB on macOS 26: extrapolated",
}


def recommended_max_memory(ram_gib: int, macos: tuple[int, int], wired_limit_mb: int = 0) -> int:
    """Bytes of Metal's `recommendedMaxWorkingSetSize`, which `torch.mps.recommended_max_memory()` returns.

    `ram_gib` is the memory in GiB; `wired_limit_mb` is the sysctl `iogpu.wired_limit_mb` (0: default), which replaces
    the value by that many MiB, in both directions (llmfit pull request 754, ds4 pull request 893).
    Raises KeyError for a memory size that no Mac has.
    """
    if wired_limit_mb:
        return wired_limit_mb * 1024**2
    fraction = (_FRACTION_26 if macos[0] >= 26 else _FRACTION_UP_TO_15)[ram_gib]
    pages = -((-ram_gib * 1024**3 * fraction) // PAGE)  # rounded up
    return int(pages) * PAGE


def max_buffer_length(ram_gib: int, macos: tuple[int, int]) -> int:
    """Bytes of Metal's `maxBufferLength`: three quarters of the default working set, rounded down to a page.

    `iogpu.wired_limit_mb` leaves it alone (M5 Max 64 GB with a limit of 57344 MiB still had 41747087360 bytes;
    M2 Ultra 192 GB with 180000 MiB still had 108 GiB, ml-explore/mlx pull request 1060).
    Raises KeyError for a memory size that no Mac has.
    """
    return recommended_max_memory(ram_gib, macos) * 3 // 4 // PAGE * PAGE


def unconfirmed(ram_gib: int, macos: tuple[int, int]) -> str:
    """What is not confirmed about the working set of this memory size and macOS; empty if a reading backs it."""
    if macos[0] > NEWEST_MACOS:
        return f"macOS {macos[0]}.{macos[1]} is not known yet: its limits are taken to be those of macOS {NEWEST_MACOS}"
    return _UNCONFIRMED_26.get(ram_gib, "") if macos[0] == 26 else ""
