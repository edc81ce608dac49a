"""Matches the calls of two traces, including calls that are one operator in pieces.

A call is identified by the program's line, forward or backward, its operator and the shapes of its results. Where the
two diverge, the nearest place is found from which they match again. The calls between form a block, which the devices
may compute with different operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anymps.compare._trace import TracedCall

_WINDOW: Final = 2000  # calls to search for a place where both match again
_IN_A_ROW: Final = 3  # calls that must match there
_NEAR: Final = 6  # within this many calls, a single match is enough: one operator in pieces


_Run = tuple[Hashable, list[TracedCall]]
"""A line, and consecutive calls of it."""


@dataclass(frozen=True)
class Pair:
    """Calls of both runs that do the same work; one each if the operator is the same."""

    left: tuple[TracedCall, ...]
    right: tuple[TracedCall, ...]

    @property
    def is_single(self) -> bool:
        """Whether each side is one call of the same operator."""
        return len(self.left) == len(self.right) == 1 and self.left[0].name == self.right[0].name


def aligned(left: Sequence[TracedCall], right: Sequence[TracedCall]) -> Iterator[Pair]:
    """The calls of both, in order; each call is in one pair. If the two never match again, the rest is one pair.

    First, stretches of calls of one line are matched, which do not depend on how a device computes a line; then the
    calls within them.
    """
    runs = _runs(left), _runs(right)
    keys = [key for key, _ in runs[0]], [key for key, _ in runs[1]]
    for one, other, match in _stretches(keys, lambda i, j: keys[0][i] == keys[1][j]):
        if match:
            yield from _within(runs[0][one][0][1], runs[1][other][0][1])
        else:
            sides = ([call for _, run in side for call in run] for side in (runs[0][one], runs[1][other]))
            yield Pair(*map(tuple, sides))


def _within(left: Sequence[TracedCall], right: Sequence[TracedCall]) -> Iterator[Pair]:
    """The calls of one line in both."""
    shaped = [_shaped(call) for call in left], [_shaped(call) for call in right]

    def alike(i: int, j: int) -> bool:
        after = slice(i + 1, i + 2), slice(j + 1, j + 2)
        return shaped[0][i] == shaped[1][j] or (
            left[i].name == right[j].name and shaped[0][after[0]] == shaped[1][after[1]]  # a size depends on data
        )

    for one, other, _ in _stretches(shaped, alike):
        yield Pair(tuple(left[one]), tuple(right[other]))


def _stretches(
    keys: tuple[list[Hashable], list[Hashable]], alike: Callable[[int, int], bool]
) -> Iterator[tuple[slice, slice, bool]]:
    """Places of both that correspond: one each where they are alike, else all up to where both match again."""
    ends = len(keys[0]), len(keys[1])
    i = j = 0
    while i < ends[0] or j < ends[1]:
        match = i < ends[0] and j < ends[1] and alike(i, j)
        ahead = (i + 1, j + 1) if match else _meeting(keys, i, j) or ends
        yield slice(i, ahead[0]), slice(j, ahead[1]), match
        i, j = ahead


def _shaped(call: TracedCall) -> Hashable:
    return call.name, tuple(value.sketch.shape for value in call.results)


def _meeting(keys: tuple[list[Hashable], list[Hashable]], i: int, j: int) -> tuple[int, int] | None:
    """The nearest place ahead from which both match for a few calls, or to their ends."""
    left, right = keys
    places: dict[Hashable, list[int]] = {}
    for place in range(j, min(j + _WINDOW, len(right))):
        places.setdefault(right[place], []).append(place)
    best: tuple[int, int] | None = None
    fewest = math.inf  # calls to pass over on both sides
    for place in range(i, min(i + _WINDOW, len(left))):
        if place - i >= fewest:
            break
        for other in places.get(left[place], ()):
            passed = place - i + other - j
            if passed >= fewest:
                break
            if passed <= _NEAR or _alike(left, right, place, other):
                best, fewest = (place, other), passed
    return best


def _alike(left: Sequence[Hashable], right: Sequence[Hashable], i: int, j: int) -> bool:
    """Whether a few calls in a row match; fewer if another difference or the end follows soon."""
    return left[i : i + _IN_A_ROW] == right[j : j + _IN_A_ROW] or (
        left[i : i + 2] == right[j : j + 2] and (i + 2 >= len(left) or j + 2 >= len(right))
    )


def _runs(calls: Sequence[TracedCall]) -> list[_Run]:
    runs: list[_Run] = []
    for call in calls:
        key = (call.site.file, call.site.line, call.in_backward)
        if not runs or runs[-1][0] != key:
            runs.append((key, []))
        runs[-1][1].append(call)
    return runs
