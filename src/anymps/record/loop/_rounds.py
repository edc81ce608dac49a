"""Counts the rounds of a loop while it runs, by the rule of a recording: a GAN's two optimizers make one together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Final

from anymps._vocabulary import RoundKind
from anymps.record.loop._cycles import MOST_AT_LINE, RARE, Round, cycles

_LEARNT: Final = 64  # steps after a further optimizer, beyond which the order is looked at only as it doubles
_KEPT: Final = 4096  # steps whose order is kept; a phase of a program that begins later is found among those after them
_ANY: Final = -1  # what optimizers count as that are made anew in each round
_FRESH: Final = 8  # optimizers for each round that is needed: they are made anew, and none of them comes again


class Rounds:
    """The rounds of a loop whose optimizers take turns.

    Where a round ends is told only by what comes after it. So a further optimizer may show that what ended before were
    no rounds: `number` then becomes smaller.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._order: list[int] = []  # of the steps since `_before`
        self._before = 0  # rounds that are counted for good
        self._ends: set[int] = set()  # the optimizers that end a round
        self._made_anew = False
        self._learns_until = self._due = 0  # in steps of the order
        self.steps = 0
        """The steps of all optimizers."""
        self.number = 0
        """The rounds that are over."""
        self.name = _ANY
        """What the optimizer counts as that stepped last."""

    @property
    def is_over(self) -> bool:
        """Whether the last step ended a round, as far as is known."""
        return self._made_anew or self.name in self._ends

    def step(self, optimizer: Hashable) -> None:
        """An optimizer has stepped."""
        self.steps += 1
        is_new = optimizer not in self._numbers
        self.name = self._numbers.setdefault(optimizer, len(self._numbers))
        self._order.append(self.name)
        if is_new and 1 < len(self._numbers) <= MOST_AT_LINE + 1:
            self._learns_until, self._due = len(self._order) + _LEARNT, 0
        if len(self._order) >= self._due:
            self._look()
        elif self.is_over:
            self.number += 1
        if self._made_anew:
            self.name = _ANY
        if len(self._order) >= _KEPT:
            self._before, self._order, self._due, self._learns_until = self.number, [], _KEPT + 1, 0

    def have_ended(self, needed: int, existing: Callable[[], Collection[Hashable]] = tuple) -> bool:
        """Whether `needed` rounds are over, the last step ended one, and no optimizer that exists may still join it.

        A critic may take several steps before its generator takes one. An optimizer that has not stepped after so many
        steps that it could be no part of each round is not waited for.
        """
        if len(self._numbers) >= _FRESH * needed:
            return True
        if self.number < needed or not self.is_over:
            return False
        return self.steps >= RARE or all(optimizer in self._numbers for optimizer in existing())

    def _look(self) -> None:
        found = cycles([Round(RoundKind.OPTIMIZER, name, 0, time, time) for time, name in enumerate(self._order)])
        self._ends = {anchor.key for anchors in found for anchor in anchors}
        self.number = self._before + sum(map(len, found))
        several = len(self._numbers) > MOST_AT_LINE
        self._made_anew = several and self.number - self._before == len(self._order)
        self._due = len(self._order) + 1 if len(self._order) < self._learns_until else 2 * len(self._order)
