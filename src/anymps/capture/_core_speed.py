"""The speed of a core of this machine, relative to an M1's: measured between a run's steps, else when it ends.

A core's speed changes within seconds, where another program has the other half of it, and not alike for all code. On an
Intel Xeon with Python 3.11, what runs many instructions takes 1.6 times as long then: multiplying large integers, loops
of Python, small calls of torch. What waits for memory or for one result after the other takes 1.1 to 1.4 times as long:
sorting a list 1.20, singular values 1.22, eigenvalues 1.18, torch's sort 1.17. So the program's own code goes by
multiplying, and what the CPU computes in fallbacks by sorting. Both are C code of the interpreter that is much the same
in each version and build of Python. The slices lie between the steps, as their end may lie in a moment of another
speed, and the quickest one counts, as the gaps are those of the quickest step.
"""

from __future__ import annotations

import time
from random import Random
from typing import Final

_BITS: Final = 12_000
_FACTORS: Final = Random(12345).getrandbits(_BITS), Random(54321).getrandbits(_BITS)
_NUMBERS: Final = tuple(map(Random(12345).uniform, [0.0] * 900, [1.0] * 900))
_SLICES: Final = 15  # at the beginning and at the end, of an eighth of a millisecond on a server
_AT_ONCE: Final = 2  # slices between two steps: what the calls have left in the caches slows the first one down
_EVERY: Final = 4  # steps, of which two are free of it
_SOON: Final = 24  # steps at the beginning of a run that are looked at however short they are
_PAUSE_NS: Final = 100_000_000  # between two later looks, at least
_ENOUGH: Final = 4  # looks between steps that tell the speed without the run's end
_M1_CODE_NS: Final = 31_250
"""What multiplying is taken to take a core of an M1, where an Intel Xeon takes 52 us (a Python built with optimisation)
to 69 us (one without). The ratio is judgement: no Mac was timed."""
_M1_COMPUTE_NS: Final = 27_300  # sorting: by the same ratio to that Xeon, where nothing else has the core
_SLOWEST, _FASTEST = 0.1, 4.0


class CoreSpeed:
    """The speeds of the core that runs the program: 1.0 for a core of an M1, 0.5 for one half as fast.

    Given as a recording holds them: `core_speed` is that of the program's own code, `compute_speed` that of computing.
    """

    def __init__(self) -> None:
        self._quickest: tuple[int, int] | None = None  # ns of a slice of each kind
        self._steps = self._looks = 0
        self._last = 0

    def begin(self) -> dict[str, float]:
        """The speeds before the script runs, which count only in a run without an end: imports come before its loop."""
        found = self.end()
        self._quickest = None
        return found

    def end(self) -> dict[str, float]:
        """The speeds by the slices between steps; where these are few, by several at the end too."""
        if self._looks < _ENOUGH:
            self._take(_SLICES)
        code, compute = self._quickest or (1, 1)
        return {"core_speed": _speed(_M1_CODE_NS, code), "compute_speed": _speed(_M1_COMPUTE_NS, compute)}

    def stepped(self) -> None:
        """A step of the program is over: look in two of four steps, and later on where the last look is long ago.

        Many runs are a few dozen short steps.
        """
        self._steps += 1
        if self._steps % _EVERY < _EVERY // 2:
            return
        if self._steps <= _SOON or time.monotonic_ns() - self._last > _PAUSE_NS:
            self._looks += 1
            self._take(_AT_ONCE)
            self._last = time.monotonic_ns()

    def _take(self, slices: int) -> None:
        taken = [_slice() for _ in range(slices)]
        if self._quickest is not None:
            taken.append(self._quickest)
        code, compute = zip(*taken, strict=True)
        self._quickest = min(code), min(compute)


def _speed(on_m1: int, took: int) -> float:
    return round(min(_FASTEST, max(_SLOWEST, on_m1 / max(1, took))), 3)


def _slice() -> tuple[int, int]:
    """Processor time of this thread in ns for multiplying and for sorting, so that what others take is not in it."""
    one, two = _FACTORS
    start = time.thread_time_ns()
    one * two
    between = time.thread_time_ns()
    sorted(_NUMBERS)
    return between - start, time.thread_time_ns() - between
