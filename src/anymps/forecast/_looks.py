"""The speed of the recording machine's core around each step.

The speed of a shared core changes within seconds. A time and a speed from different moments cannot be combined: on such
a machine the quickest step over the highest speed is sometimes off by half. So each step's times are scaled by the
looks beside it (`capture/_looks.py`).
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

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
    looked: Sequence[Look] = ()
    spilled: int = 0


class Looks:
    """The looks of a recording. One of an earlier version, or of a run without an optimizer, holds none."""

    def __init__(self, recorded: Sequence[Sequence[Any]], speeds: Speeds) -> None:
        """`speeds` are those of the whole run, for steps beside which there is no look."""
        self._rows = recorded if speeds.code else ()
        self._begins = [row[0] for row in self._rows]
        self._whole = Beside(speeds)

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
        return Beside(Speeds(code, compute), looked, spilled)

    def _within(self, step: Step) -> Sequence[Sequence[Any]]:
        end = step.start_ns if step.end_ns is None else step.end_ns
        return self._rows[bisect_left(self._begins, step.start_ns) : bisect_left(self._begins, end)]

    def _before(self, step: Step) -> Sequence[Any]:
        """The look that ends where the step begins; empty where there is none."""
        at = bisect_left(self._begins, step.start_ns)
        return self._rows[at - 1] if at and step.start_ns - self._rows[at - 1][1] < _AT_ONCE_NS else ()
