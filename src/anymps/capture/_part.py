"""The progress of a run, and recording a part of it: the optimizer's steps switch the tape on and off."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anymps._errors import UsageError
from anymps.capture._core import Core
from anymps.record.format import StepRow

if TYPE_CHECKING:
    import torch


def check_steps(steps: tuple[int, int]) -> tuple[int, int]:
    """The steps as they are. Raises UsageError unless 0 <= first < last."""
    first, last = steps
    if not 0 <= first < last:
        raise UsageError(f"steps {first}:{last} is not a range: the first counts from 0, and the last must be larger")
    return steps


class Part:
    """Calls `begin` after `first` steps of the program's optimizer, and `end` after `last`.

    Of several optimizers the one counts that steps first.
    """

    def __init__(self, steps: tuple[int, int], begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.first, self.last = steps
        self.seen = 0
        self._begin, self._end = begin, end
        self._counted_optimizer: weakref.ref[torch.optim.Optimizer] | None = None

    @property
    def begun(self) -> bool:
        """Whether the part has been reached."""
        return self.seen >= self.first

    @property
    def done(self) -> bool:
        """Whether the part is over."""
        return self.seen >= self.last

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped."""
        if self._counted_optimizer is None or self._counted_optimizer() is None:
            self._counted_optimizer = weakref.ref(optimizer)
        if self._counted_optimizer() is not optimizer:
            return
        self.seen += 1
        if self.seen == self.first:
            self._begin()
        elif self.seen == self.last:
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
    """How far a run is. `steps` counts all that its optimizers made, `recorded` those that are in the recording.

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


class StepClock:
    """Counts steps as they come off the tape, and keeps the time of the last ones."""

    def __init__(self) -> None:
        self.count = 0
        self.step_ns = 0.0

    def add(self, rows: Sequence[StepRow], begin_ns: int = 0) -> None:
        """Steps that have ended; none of them began before `begin_ns`."""
        start, end = (max(rows[0][1], begin_ns), rows[-1][2]) if rows else (0, None)
        if end is not None:
            self.count += len(rows)
            self.step_ns = (end - start) / len(rows)
