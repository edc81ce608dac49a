"""The state of the recording machine around each step: the speed of its core, and how cold its caches were.

The speed and caches of a shared core change within seconds. A time and a speed from different moments cannot be
combined: on such a machine the quickest step over the highest speed is sometimes off by half. So each step's times are
scaled by the looks beside it (`capture/_looks.py`).
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from anymps.forecast._caches import Caches
from anymps.forecast._gaps import Seen
from anymps.record import Step

_AT_ONCE_NS: Final = 1_000_000  # a step ends no later than that after the look at its end


class Speeds(NamedTuple):
    """Of a core of the recording machine, that of an M1 being 1. With 0 the recording's times mean nothing."""

    code: float
    """At which it runs the program's own code."""
    compute: float
    """At which it computes what falls back to it."""


class Look(NamedTuple):
    """A time in which the machine was looked at: where it begins and its length, in ns.

    The thread had no core for `lost` us of it.
    """

    begin: int
    length: int
    lost: int


class Beside(NamedTuple):
    """The machine beside a step, and when it was `looked` at in it: that time is not the program's.

    Of what is told to be lost at the step's first call, `spilled` us were lost in the look just before the step.
    """

    speeds: Speeds
    caches: Caches
    looked: Sequence[Look] = ()
    spilled: int = 0

    def warm(self, seen: Seen) -> Seen:
        """The step with the times that its code takes with usual caches."""
        return seen._replace(happenings=self.caches.warm(seen.happenings, self.speeds.code))


class Looks:
    """The looks of a recording. One of an earlier version, or of a run without an optimizer, holds none."""

    def __init__(self, recorded: Sequence[Sequence[Any]], cold_code: Sequence[float], speeds: Speeds) -> None:
        """`cold_code` and `speeds` are those of the whole run, for steps beside which there is no look."""
        self._rows = recorded if speeds.code else ()
        self._begins = [row[0] for row in self._rows]
        self._whole = Beside(speeds, Caches.of(cold_code))
        self._again = _again([row for row in self._rows if row[5]])

    def __bool__(self) -> bool:
        return bool(self._rows)

    def ended(self, step: Step) -> bool:
        """Whether there is a look in the step; it lies at its end."""
        return bool(self._within(step))

    def beside(self, step: Step) -> Beside:
        """By the look at the step's end, and by that before it where one is near."""
        rows = self._within(step)
        looked = [Look(begin, end - begin, lost) for begin, end, lost, *_ in rows]
        spilled = 0
        if before := self._before(step):
            rows, spilled = [before, *rows], before[2]
        if not rows:
            return self._whole
        code, compute = statistics.fmean(row[3] for row in rows), statistics.fmean(row[4] for row in rows)
        cold = [row[5] for row in rows if row[5]]
        caches = Caches.of([statistics.fmean(cold), self._again / code]) if cold else self._whole.caches
        return Beside(Speeds(code, compute), caches, looked, spilled)

    def _within(self, step: Step) -> Sequence[Sequence[Any]]:
        end = step.start_ns if step.end_ns is None else step.end_ns
        return self._rows[bisect_left(self._begins, step.start_ns) : bisect_left(self._begins, end)]

    def _before(self, step: Step) -> Sequence[Any]:
        """The look that ends where the step begins; empty where there is none."""
        at = bisect_left(self._begins, step.start_ns)
        return self._rows[at - 1] if at and step.start_ns - self._rows[at - 1][1] < _AT_ONCE_NS else ()


def _again(rows: Sequence[Sequence[Any]]) -> float:
    """The us on an M1 of the code that a look runs cold, with warm caches: by the quickest looks but one in eight.

    Not by that look itself: on an Intel Xeon, where another program has the other half of the core, loops of Python, as
    which speeds go, take up to twice as long, this code 1.55 times, and run cold 1.36 times, as the program's own
    code does too. So of the program's code, which is scaled by that speed, less is due to cold caches then.
    """
    if not rows:
        return 0.0
    least = len(rows) // 8
    return float(sorted(row[6] for row in rows)[least] * sorted(row[3] for row in rows)[-1 - least])
