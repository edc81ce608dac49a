"""A part of a run: the tape is switched on and off by the program's optimizer steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anymps._errors import UsageError
from anymps.capture._core import Core

if TYPE_CHECKING:
    import torch


def check_steps(steps: tuple[int, int]) -> tuple[int, int]:
    """The steps as they are. Raises UsageError unless 0 <= first < last."""
    first, last = steps
    if not 0 <= first < last:
        raise UsageError(f"steps {first}:{last} are none: the first counts from 0, and the last must be larger")
    return steps


class Part:
    """Calls `begin` after `first` steps of the program's optimizer, and `end` after `last`.

    Of several optimizers the one counts that steps first.
    """

    def __init__(self, steps: tuple[int, int], begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.first, self.last = steps
        self.seen = 0
        self._begin, self._end = begin, end
        self._pace: weakref.ref[torch.optim.Optimizer] | None = None

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
        if self._pace is None or self._pace() is None:
            self._pace = weakref.ref(optimizer)
        if self._pace() is not optimizer:
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
