"""The speed of a core of this machine, relative to an M1's: measured when a recording begins, ends, and in between.

A slice multiplies large integers: C code of the interpreter that is much the same in each version and build of Python.
A core's speed changes within seconds, where another program has the other half of it. Multiplying then takes 1.76 times
as long, loops of Python 1.75 to 1.82 times, and sorting, by comparison, only 1.31 times (Intel Xeon, Python 3.11). So
the slices lie where the program's code lies, and the quickest one counts, as the gaps are those of the quickest step.
"""

from __future__ import annotations

import time
from random import Random
from typing import Final

_BITS: Final = 12_000
_FACTORS: Final = Random(12345).getrandbits(_BITS), Random(54321).getrandbits(_BITS)
_PRODUCTS: Final = 4
_SLICES: Final = 15  # at the beginning and at the end, of a quarter of a millisecond on a server
_EVERY: Final = 4  # steps: the three between are free of it
_PAUSE_NS: Final = 100_000_000  # between two slices of a run, at least
_M1_NS: Final = 125_000
"""What a slice is taken to take a core of an M1, where an Intel Xeon takes 210 us (a Python built with optimisation) to
275 us (one without). The ratio is judgement: no Mac was timed."""
_SLOWEST, _FASTEST = 0.1, 4.0


class CoreSpeed:
    """The speed of the core that runs the program: 1.0 for a core of an M1, 0.5 for one half as fast."""

    def __init__(self) -> None:
        self._quickest = 0  # ns; 0: none yet
        self._steps = 0
        self._last = 0

    def begin(self) -> float:
        """The speed before the script runs, which counts only in a run without an end: imports come before its loop."""
        found = self.end()
        self._quickest = 0
        return found

    def end(self) -> float:
        """The speed by several slices, and by those that the steps have taken."""
        for _ in range(_SLICES):
            self._take()
        return round(min(_FASTEST, max(_SLOWEST, _M1_NS / max(1, self._quickest))), 3)

    def stepped(self) -> None:
        """A step of the program is over: take a slice where the last one is long ago."""
        self._steps += 1
        if self._steps % _EVERY == 0 and time.monotonic_ns() - self._last > _PAUSE_NS:
            self._take()

    def _take(self) -> None:
        took = _slice()
        self._quickest = min(self._quickest or took, took)
        self._last = time.monotonic_ns()


def _slice() -> int:
    """Processor time of this thread in ns, so that what others take of the core is not in it."""
    one, two = _FACTORS
    start = time.thread_time_ns()
    for _ in range(_PRODUCTS):
        one * two
    return time.thread_time_ns() - start
