"""Looks at the machine between a program's steps: the speed of its core, relative to an M1's.

It changes within seconds on a machine that others use too. So each look is kept with its time, and a step's times go by
the look at its end. The look itself runs between a step's last call and its end, and must not count as the program's
own code: so its duration is kept too.

A look times short pieces of C code, as the speed changes differently for each kind of code, if another program uses the
core's other thread. On an Intel Xeon with Python 3.11, code of many instructions then takes 1.6 times as long:
multiplying large integers, loops of Python, small calls of torch. Code that waits for memory or for each result takes
1.1 to 1.4 times as long: sorting a list 1.20, singular values 1.22, eigenvalues 1.18, torch's sort 1.17. So fallbacks
are scaled by sorting, and the program's own code by multiplying and sorting together. Both are C code of the
interpreter that is much the same in each version and build of Python. Each sorting is of other numbers: a core that has
learned the branches of one list sorts it in 0.6 of the time, but not where another program makes it forget them.

After a step the first slices are slower than those that follow, as caches and predictions of branches know other code:
on that Xeon, the first takes 1.37 times the fourth, the second 1.17, the third 1.07. So the first three do not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
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
_SOON: Final = 24  # steps at the beginning of a run that are looked at however short they are
_PAUSE_NS: Final = 400_000_000  # between later looks, at least: one takes a millisecond
_MOST: Final = 1000  # looks that are kept, of some 50 bytes each
_ENOUGH: Final = 4  # looks that tell the speed without the run's end

_Look = tuple[int, int, int, float, float]
"""As a recording holds it: begin and end in ns, 0, the speeds of code and of computing."""


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


class Looks:
    """The looks of one run."""

    def __init__(self) -> None:
        self._looks: list[_Look] = []
        self._steps = 0
        self._pause = _PAUSE_NS
        self._next = 0

    def begin(self) -> dict[str, object]:
        """The speeds before the script runs, which count only in a run without an end: imports come before its loop."""
        return _facts(core_speed_at_rest())

    def begin_part(self) -> None:
        """The part of the run that is recorded begins: its first steps are looked at, and those before do not count."""
        self._looks.clear()
        self._steps = 0

    def stepped(self, clock_ns: Callable[[], int]) -> None:
        """A step of the program is over: look, if it is one of the first, or the last look is long ago.

        `clock_ns` is the clock of the recording.
        """
        self._steps += 1
        begin = clock_ns()
        if self._steps > _SOON and begin < self._next:
            return
        speed = core_speed()
        end = clock_ns()
        self._looks.append((begin, end, 0, *speed))
        self._next = end + self._pause
        if len(self._looks) > _MOST:  # of a long run every second one is kept, and later ones are as far apart
            del self._looks[_SOON::2]
            self._pause *= 2

    def end(self) -> dict[str, object]:
        """What a recording holds of it: each look, and of the whole run the highest speeds.

        Where the looks are few, the speed at the end counts too.
        """
        looks = self._looks
        speeds = [CoreSpeed(*look[3:]) for look in looks]
        if len(looks) < _ENOUGH:
            speeds.append(core_speed_at_rest())
        highest = CoreSpeed(max(speed.code for speed in speeds), max(speed.compute for speed in speeds))
        return {**_facts(highest), "looks": looks}


def _facts(speed: CoreSpeed) -> dict[str, object]:
    return {"core_speed": speed.code, "compute_speed": speed.compute}
