"""The device's memory counters, read once nothing but the test moves them."""

from __future__ import annotations

import gc
import time

import torch

import anymps

_SAME = 4
"""Readings in a row that must be equal: on a busy machine that thread may not run for some hundredths of a second."""


def live() -> tuple[int, int]:
    """Bytes in use and the number of live blocks (0 on a real Mac, which does not tell), once they stand still.

    The autograd engine's thread lets go of a graph a moment after the backward has returned.
    """
    found, same = _read(), 0
    while same < _SAME:
        time.sleep(0.01)
        again = _read()
        found, same = again, same + 1 if again == found else 0
    return found


def settle() -> None:
    """Wait for the counters to stand still and give back what is cached.

    A freed block serves a later, smaller request whole, and counts whole.
    """
    live()
    torch.mps.empty_cache()


def _read() -> tuple[int, int]:
    gc.collect()
    torch.mps.synchronize()
    blocks = 0
    if anymps.is_virtual():
        from anymps.device._enable import native

        blocks = native().memory_statistics()["live_blocks"]
    return torch.mps.current_allocated_memory(), blocks
