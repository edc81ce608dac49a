"""How fast a core of this machine is beside one of an M1: by a hundredth of a second of sorting, once a process."""

from __future__ import annotations

import time
from functools import cache
from typing import Final

_COUNT: Final = 4096
_SLICES: Final = 60  # of a fifth of a millisecond on a server
_M1_NS: Final = 140_000
"""What a slice is taken to take a core of an M1: 0.65 of the 215 us of the server that this ratio was judged on, an AMD
EPYC with Python 3.11. No Mac was timed."""
_SLOWEST, _FASTEST = 0.1, 4.0


@cache
def core_speed() -> float:
    """An M1's core being 1. Sorting is the interpreter's C code, with branches and memory as a program's own has.

    By the thread's processor time, and the quickest slice counts: so a busy machine has the speed of a quiet one.
    """
    numbers, state = [], 12345
    for _ in range(_COUNT):
        state = (1103515245 * state + 12345) % 2**31
        numbers.append(state / 2**31)
    best = min(_slice(numbers) for _ in range(_SLICES))
    return round(min(_FASTEST, max(_SLOWEST, _M1_NS / max(1, best))), 3)


def _slice(numbers: list[float]) -> int:
    start = time.thread_time_ns()
    sorted(numbers)
    return time.thread_time_ns() - start
