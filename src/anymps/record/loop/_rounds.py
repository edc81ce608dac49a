"""What comes round in a loop: found among all rounds of a recording, and counted by the same rule while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from anymps._vocabulary import RoundKind

RARE: Final = 10
"""Times rarer than what comes most often: no part of each round."""

MOST_AT_LINE: Final = 64
"""Optimizers or modules at one line; more may be made anew in each round."""


class Round(NamedTuple):
    """Once round a loop: `key` says which optimizer or module, `site` the line."""

    kind: int
    key: int
    site: int
    start_ns: int
    end_ns: int


def cycles(rounds: Sequence[Round]) -> list[list[Round]]:
    """The loops that rounds of one kind come from: for each, those rounds that come once each time round, and last."""
    name = _names(rounds)
    most = max(Counter(map(name, rounds)).values(), default=0)
    repeats = Counter(name(after) for before, after in pairwise(rounds) if name(before) == name(after))
    found: list[list[Round]] = []
    left = list(rounds)
    while left:
        counts = Counter(map(name, left))
        first = {key: place for place, key in reversed(list(enumerate(map(name, left))))}
        common = [key for key, number in counts.items() if number * RARE >= max(counts.values())]
        last = min(common, key=lambda key: (counts[key], -first[key]))
        seen: Counter[Hashable] = Counter()
        between: set[Hashable] = set()
        for round_ in left:
            if name(round_) == last:
                seen.update(between)
                between = set()
            else:
                between.add(name(round_))
        together = {key for key, number in seen.items() if 2 * number >= counts[last]} | {last}
        # One that comes now and then among the others has no loop of its own.
        if counts[last] * RARE >= most or 2 * repeats[last] >= counts[last]:
            found.append([round_ for round_ in left if name(round_) == last])
        left = [round_ for round_ in left if name(round_) not in together]
    return found


def _names(rounds: Sequence[Round]) -> Callable[[Round], Hashable]:
    """What makes two rounds the same: line and optimizer or module, the line alone where these are made anew."""
    at_line: dict[int, list[int]] = {}
    for round_ in rounds:
        at_line.setdefault(round_.site, []).append(round_.key)
    anew = {site for site, keys in at_line.items() if _are_made_anew(keys)}
    return lambda round_: (round_.site, 0 if round_.site in anew else round_.key)


def _are_made_anew(keys: Sequence[int]) -> bool:
    """Whether they are many, and most of them never come again after another; an optimizer for each weight does."""
    kinds = len(set(keys))
    return kinds > MOST_AT_LINE and 1 + sum(before != after for before, after in pairwise(keys)) < 2 * kinds


_LEARNT: Final = 64  # steps after a further optimizer, beyond which the order is looked at only as it doubles
_KEPT: Final = 4096  # steps whose order is kept; a phase of a program that begins later is found among those after them
_ANY: Final = -1  # what optimizers count as that are made anew in each round
_FRESH: Final = 8  # optimizers for each round that is needed: they are made anew, and none of them comes again


class Rounds:
    """The rounds of a loop whose optimizers take turns.

    Where a round ends is told only by what comes after it. So a further optimizer may show that what ended before were
    no rounds: `number` then becomes smaller. Loops of fewer than `least` rounds count as none.
    """

    def __init__(self, least: int = 1) -> None:
        self._least = least
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
        order = [Round(RoundKind.OPTIMIZER, name, 0, time, time) for time, name in enumerate(self._order)]
        found = [anchors for anchors in cycles(order) if len(anchors) >= self._least]
        self._ends = {anchor.key for anchors in found for anchor in anchors}
        self.number = self._before + sum(map(len, found))
        several = len(self._numbers) > MOST_AT_LINE
        self._made_anew = several and self.number - self._before == len(self._order)
        self._due = len(self._order) + 1 if len(self._order) < self._learns_until else 2 * len(self._order)
