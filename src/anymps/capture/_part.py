"""The progress of a run, and recording a part of it: the steps of its loop switch the tape on and off."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from anymps._errors import UsageError
from anymps.capture._core import Core
from anymps.record.loop import Rounds


def check_steps(steps: tuple[int, int]) -> tuple[int, int]:
    """The steps as they are. Raises UsageError unless 0 <= first < last."""
    first, last = steps
    if not 0 <= first < last:
        raise UsageError(f"steps {first}:{last} is not a range: the first counts from 0, and the last must be larger")
    return steps


class Part:
    """Calls `begin` after `first` steps of the program's loop, and `end` after `last`; `rounds` counts them.

    Where it had to learn what a step is, the part is that of later or of more steps: `first` and `last` say so.
    """

    def __init__(
        self, steps: tuple[int, int], rounds: Rounds, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self.first, self.last = steps
        self._rounds, self._begin, self._end = rounds, begin, end
        self.begun = self.first == 0
        """Whether the part has been reached."""
        self.done = False
        """Whether the part is over."""

    @property
    def recorded(self) -> int:
        """The steps of the part that are over."""
        return max(0, min(self._rounds.number, self.last) - self.first)

    def stepped(self, existing: Callable[[], Collection[int]]) -> None:
        """An optimizer has stepped; `existing` tells which there are."""
        if not self.begun:
            if self._rounds.have_ended(self.first, existing):
                late = self._rounds.number - self.first
                self.first, self.last = self.first + late, self.last + late
                self.begun = True
                self._begin()
        elif not self.done:
            # A further optimizer may have shown that what ended before were no rounds.
            self.first = min(self.first, self._rounds.number)
            if not self._rounds.have_ended(self.last, existing):
                return
            self.last = self._rounds.number
            self.done = True
            self._end()


class HeldMarks:
    """The core as habits see it: what they note before the part begins is held, and written when it does.

    A loader or an optimizer is made once, before the first recorded step. What is noted again and again is held once.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._held: dict[tuple[str, int, int], None] | None = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def note_pair(self, name: str, site: int, other: int) -> None:
        """Write a mark, or hold it."""
        if self._held is None:
            self._core.note_pair(name, site, other)
        else:
            self._held[name, site, other] = None

    def release(self) -> None:
        """Write what was held, and hold nothing any more."""
        held, self._held = self._held, None
        for mark in held or ():
            self._core.note_pair(*mark)


@dataclass(frozen=True)
class Progress:
    """How far a run is. `steps` counts all that it made, `recorded` those that are in the recording.

    `step_ns` is the time of one of the steps that ended last; 0 before the first has ended. `waits` are those of all
    recorded steps, `allocated` and `peak` bytes of the device. `begun` and `over` tell of a part of a run whether its
    first and its last step have come; of a whole run they are true and false.
    """

    steps: int
    recorded: int
    waits: int
    step_ns: float
    allocated: int
    peak: int
    begun: bool
    over: bool
