"""Decides when a plan has measured enough: alternating optimizers, as in a GAN, make one step together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_MOST: Final = 8  # optimizers in a round: more are made anew in each, and none of them comes again


class StepCounter:
    """Counts the steps of optimizers until the loop has taken `needed` whole ones.

    One that has its first turn only after another has taken `needed` steps in a row comes too late to be waited for.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed
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
        return all(len(self._places[other]) >= self._needed for other in in_turn)
