"""Matches the calls of two traces, including calls that are one operator in pieces.

A call is identified by the program's line, forward or backward, its operator and the shapes of its results. Where the
two diverge, the nearest place is found from which they match again. The calls between form a block, which the devices
may compute with different operators.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anymps.compare._trace import Call

_WINDOW: Final = 2000  # calls to search for a place where both match again
_IN_A_ROW: Final = 3  # calls that must match there
_NEAR: Final = 6  # within this many calls, a single match is enough: one operator in pieces


_Run = tuple[Hashable, list[Call]]
"""A line, and consecutive calls of it."""


@dataclass(frozen=True)
class Pair:
    """Calls of both runs that do the same work; one each if the operator is the same."""

    left: tuple[Call, ...]
    right: tuple[Call, ...]

    @property
    def is_single(self) -> bool:
        """Whether each side is one call of the same operator."""
        return len(self.left) == len(self.right) == 1 and self.left[0].name == self.right[0].name


def aligned(left: Sequence[Call], right: Sequence[Call]) -> Iterator[Pair]:
    """The calls of both, in order; each call is in one pair. If the two never match again, the rest is one pair.

    First, stretches of calls of one line are matched, which do not depend on how a device computes a line; then the
    calls within them.
    """
    runs = _runs(left), _runs(right)
    keys = [key for key, _ in runs[0]], [key for key, _ in runs[1]]
    i = j = 0
    while i < len(keys[0]) and j < len(keys[1]):
        if keys[0][i] == keys[1][j]:
            yield from _within(runs[0][i][1], runs[1][j][1])
            i, j = i + 1, j + 1
            continue
        ahead = _meeting(keys, i, j) or (len(keys[0]), len(keys[1]))
        yield _joined(runs[0][i : ahead[0]], runs[1][j : ahead[1]])
        i, j = ahead
    if i < len(keys[0]) or j < len(keys[1]):
        yield _joined(runs[0][i:], runs[1][j:])


def _joined(left: Sequence[_Run], right: Sequence[_Run]) -> Pair:
    return Pair(tuple(call for _, run in left for call in run), tuple(call for _, run in right for call in run))


def _within(left: Sequence[Call], right: Sequence[Call]) -> Iterator[Pair]:
    """The calls of one line in both."""
    shaped = [_shaped(call) for call in left], [_shaped(call) for call in right]
    i = j = 0
    while i < len(left) and j < len(right):
        is_alike = shaped[0][i] == shaped[1][j] or (
            left[i].name == right[j].name and _go_on(shaped, i + 1, j + 1)  # a size that depends on data
        )
        if is_alike:
            yield Pair((left[i],), (right[j],))
            i, j = i + 1, j + 1
            continue
        ahead = _meeting(shaped, i, j)
        if ahead is None:
            break
        yield Pair(tuple(left[i : ahead[0]]), tuple(right[j : ahead[1]]))
        i, j = ahead
    if i < len(left) or j < len(right):
        yield Pair(tuple(left[i:]), tuple(right[j:]))


def _shaped(call: Call) -> Hashable:
    return call.name, tuple(value.sketch.shape for value in call.results)


def _go_on(keys: tuple[list[Hashable], list[Hashable]], i: int, j: int) -> bool:
    return keys[0][i : i + 1] == keys[1][j : j + 1]


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


def _runs(calls: Sequence[Call]) -> list[_Run]:
    runs: list[_Run] = []
    for call in calls:
        key = (call.site.file, call.site.line, call.in_backward)
        if not runs or runs[-1][0] != key:
            runs.append((key, []))
        runs[-1][1].append(call)
    return runs
