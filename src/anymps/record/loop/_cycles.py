"""What comes round in a loop: the rounds of one kind that end it, found among all that came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

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
