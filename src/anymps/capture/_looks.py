"""Looks at the machine between a program's steps: the speed of its core.

It changes within seconds on a machine that others use too. So each look is kept with its time, and a step's time is
compared with the looks around it. The look itself runs between a step's last call and its end, and must not count as
the program's own code. So its duration is kept too, and how long the thread had no core meanwhile: the recorder learns
of it at the next step's first call, because that call's own code may be shorter than the look.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from anymps.capture._core_speed import CoreSpeed, core_speed, core_speed_at_rest

_SOON: Final = 24  # steps at the beginning of a run that are looked at however short they are
_PAUSE_NS: Final = 800_000_000  # after two later looks, at least: one takes a millisecond
_IN_A_ROW: Final = 2  # looks after a pause, so that a step lies between them
_MOST: Final = 1000  # looks that are kept, of some 50 bytes each
_ENOUGH: Final = 4  # looks that tell the speed without the run's end


class _Look(NamedTuple):
    """One look at this machine's core, from `begin` to `end` in ns.

    `lost` is the time without a core, in us; `code` and `compute` are speeds.
    """

    begin: int
    end: int
    lost: int
    code: float
    compute: float


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
        """A step of the program is over: look, if it is one of the first, or the last looks are long ago.

        `clock_ns` is the clock of the recording.
        """
        self._steps += 1
        begin = clock_ns()
        if self._steps > _SOON and begin < self._next:
            return
        ran = time.thread_time_ns()
        speed = core_speed()
        ran = time.thread_time_ns() - ran
        end = clock_ns()
        self._looks.append(_Look(begin, end, max(0, end - begin - ran) // 1000, *speed))
        if len(self._looks) % _IN_A_ROW == 0:
            self._next = end + self._pause
        if len(self._looks) > _MOST:
            self._thin_out()

    def _thin_out(self) -> None:
        """Of a long run every second pair is kept, and later ones are as far apart."""
        self._looks = [look for at, look in enumerate(self._looks) if at < _SOON or at // _IN_A_ROW % 2 == 0]
        self._pause *= 2

    def end(self) -> dict[str, object]:
        """What a recording holds of it: each look, and of the whole run the highest speeds.

        Where the looks are few, the speed at the end counts too.
        """
        looks = self._looks
        speeds = [CoreSpeed(look.code, look.compute) for look in looks]
        if len(looks) < _ENOUGH:
            speeds.append(core_speed_at_rest())
        highest = CoreSpeed(max(speed.code for speed in speeds), max(speed.compute for speed in speeds))
        return {**_facts(highest), "looks": looks}


def _facts(speed: CoreSpeed) -> dict[str, object]:
    return {"core_speed": speed.code, "compute_speed": speed.compute}
