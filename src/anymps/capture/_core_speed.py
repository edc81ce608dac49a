"""The speed of a core of this machine, relative to an M1's, by what short pieces of C code take on it.

A core's speed changes within seconds if another program uses its other thread, and differently for each kind of code.
On an Intel Xeon with Python 3.11, code of many instructions then takes 1.6 times as long: multiplying large integers,
loops of Python, small calls of torch. Code that waits for memory or for each result takes 1.1 to 1.4 times as long:
sorting a list 1.20, singular values 1.22, eigenvalues 1.18, torch's sort 1.17. So fallbacks are scaled by sorting, and
the program's own code by multiplying and sorting together. Both are C code of the interpreter that is much the same in
each version and build of Python. Each sorting is of other numbers: a core that has learned the branches of one list
sorts it in 0.6 of the time, but not where another program makes it forget them.

After a step the first slices are slower than those that follow, as caches and predictions of branches know other code:
on that Xeon, the first takes 1.37 times the fourth, the second 1.17, the third 1.07. So the first three do not count.
"""

from __future__ import annotations

import statistics
import time
from itertools import cycle, islice
from random import Random
from typing import Final, NamedTuple

_BITS: Final = 12_000
_FACTORS: Final = Random(12345).getrandbits(_BITS), Random(54321).getrandbits(_BITS)
_NUMBERS: Final = tuple(tuple(map(Random(seed).uniform, [0.0] * 900, [1.0] * 900)) for seed in range(16))
_WARM_UP: Final = 3
_SLICES: Final = 2  # after those, of an eighth of a millisecond on a server
_SLICES_AT_REST: Final = 15  # where no step waits
_M1_MULTIPLY_NS: Final = 31_250
"""What multiplying is taken to take a core of an M1, where an Intel Xeon takes 52 us (a Python built with optimisation)
to 69 us (one without). The ratio is judgement: no Mac was timed."""
_M1_SORT_NS: Final = 43_600  # sorting: by the same ratio to that Xeon, where nothing else has the core
_OF_BOTH: Final = 0.6
"""The power of both speeds' product that own code goes by. One neighbour slows multiplying more, another one sorting.
In 20 trainings beside other programs, the time of a loop of Python varied by 8 % in this measure and by 10 % in that of
multiplying alone. The best powers there are 0.5 and 1.2; but what makes much more than 1 together would take another
core than an M1's for too slow or too fast."""
_SLOWEST, _FASTEST = 0.1, 4.0


class CoreSpeed(NamedTuple):
    """1.0 for a core of an M1, 0.5 for one half as fast: for the program's own code, and for computing."""

    code: float
    compute: float


def core_speed() -> CoreSpeed:
    """The speed at this moment, between two steps."""
    taken = _slices(_WARM_UP + _SLICES)[_WARM_UP:]
    return _speeds(*map(statistics.mean, zip(*taken, strict=True)))


def core_speed_at_rest() -> CoreSpeed:
    """The speed by the quickest of several slices."""
    return _speeds(*map(min, zip(*_slices(_SLICES_AT_REST), strict=True)))


def _speeds(multiplying: float, sorting: float) -> CoreSpeed:
    """By the ns that each takes."""
    compute = _M1_SORT_NS / max(1, sorting)
    code = (_M1_MULTIPLY_NS / max(1, multiplying) * compute) ** _OF_BOTH
    return CoreSpeed(_within_bounds(code), _within_bounds(compute))


def _within_bounds(speed: float) -> float:
    return round(min(_FASTEST, max(_SLOWEST, speed)), 3)


def _slices(number: int) -> list[tuple[int, int]]:
    return [_slice(numbers) for numbers in islice(cycle(_NUMBERS), number)]


def _slice(numbers: tuple[float, ...]) -> tuple[int, int]:
    """Processor time of this thread in ns for multiplying and for sorting, so that what others take is not in it."""
    one, two = _FACTORS
    start = time.thread_time_ns()
    one * two
    between = time.thread_time_ns()
    sorted(numbers)
    return between - start, time.thread_time_ns() - between
