"""Decides when a plan has measured enough: alternating optimizers, as in a GAN, make one step together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from itertools import pairwise
from typing import Final

_MOST: Final = 8  # optimizers in a round: more are made anew in each, and none of them comes again
_PATIENCE: Final = 3  # times the steps that are needed: an optimizer that has none by then may be for later


class StepCounter:
    """Counts the steps of optimizers until the loop has taken `needed` whole ones.

    `existing` names the optimizers that there are, as a critic may take several steps before its generator takes one.
    One that has its first turn only after another has taken `needed` steps in a row, and is not named, comes too late.
    """

    def __init__(self, needed: int, existing: Callable[[], Collection[Hashable]] = tuple) -> None:
        self._needed = needed
        self._existing = existing
        self._order: list[Hashable] = []
        self._places: dict[Hashable, list[int]] = {}  # of each optimizer in the order

    @property
    def taken(self) -> int:
        """Steps of all optimizers."""
        return len(self._order)

    def step(self, optimizer: Hashable) -> bool:
        """An optimizer has stepped: whether it was the last step that is needed.

        It is if whoever has stepped between the last `needed` steps of this one has taken as many.
        """
        places = self._places.setdefault(optimizer, [])
        places.append(len(self._order))
        self._order.append(optimizer)
        if self.taken >= _MOST * self._needed:
            return True
        if len(places) < self._needed:
            return False
        in_turn = set(self._order[places[-self._needed] :])
        if any(len(self._places[other]) < self._needed for other in in_turn):
            return False
        return not any(self._may_follow(other) for other in self._existing())

    def _may_follow(self, optimizer: Hashable) -> bool:
        """Whether an optimizer without enough steps may have another: it has waited no longer than it did before."""
        places = self._places.get(optimizer)
        if places is None:
            return self.taken < _PATIENCE * self._needed
        longest = max(after - before for before, after in pairwise([-1, *places]))
        return len(places) < self._needed and self.taken - 1 - places[-1] < longest
