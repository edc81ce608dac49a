"""Which optimizer's step ends a round of a loop, found while the loop runs: a GAN's two make one step together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch.optim import Optimizer

_RARE: Final = 10  # times rarer than what steps most often: no part of each round
_MOST: Final = 64  # optimizers of a round; more are made anew in each
_ANY: Final = "any"  # what these count as


def optimizer_key(optimizer: Optimizer) -> Hashable:
    """What an optimizer is counted by: one made anew for the same parameters is the same.

    Its own id may have been another's before.
    """
    group = optimizer.param_groups[0]["params"]
    return id(group[0]) if group else id(optimizer)


class Rounds:
    """Counts the rounds of a loop whose optimizers take turns, by the same rule as a recording (`record/_rounds.py`).

    The optimizer that steps least often ends a round, of several the last one. Which one that is stays open until
    `needed` rounds are over. A further optimizer opens the question again. If it does so later, the rounds so far were
    none, and are counted from the start.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._known: set[Hashable] = set()
        self._counts: Counter[Hashable] = Counter()  # by the optimizer, in the order in which they stepped first
        self._is_open = True
        self._last: Hashable = None
        self.name: Hashable = None
        """What the optimizer counts as that stepped last."""

    @property
    def number(self) -> int:
        """The rounds that are over."""
        return self._counts[self._last]

    @property
    def is_over(self) -> bool:
        """Whether the last step ended a round, as far as is known."""
        return self.name == self._last

    def step(self, optimizer: Hashable) -> bool:
        """An optimizer has stepped: whether that shows that the rounds so far were none."""
        self.name = name = optimizer if len(self._known) <= _MOST else _ANY
        is_new = name not in self._known
        wrong = is_new and self.number > self._needed
        if wrong or (is_new and name == _ANY):
            self._counts.clear()
        self._known.add(name)
        self._counts[name] += 1
        if is_new or self._is_open:
            self._last = self._least()
            self._is_open = not self.is_over or self.number < self._needed
        return wrong

    def _least(self) -> Hashable:
        most = max(self._counts.values())
        order = {optimizer: place for place, optimizer in enumerate(self._counts)}
        common = [optimizer for optimizer, number in self._counts.items() if number * _RARE >= most]
        return min(common, key=lambda optimizer: (self._counts[optimizer], -order[optimizer]))
