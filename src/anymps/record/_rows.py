"""Rows of a recording by SQL, and what all queries share: steps, their wall clock, full detail, medians."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

from anymps._vocabulary import Fate, Phase

Rows = Callable[..., list[tuple[Any, ...]]]
"""Runs a query, with the values for the `?` in it, and gives all of its rows."""

_REGULAR = 3  # times that something must happen before it can be called regular

# The end of full detail: the tape drops plain operators past its limit, thread by thread, so the step in which any of
# the three great phases was last seen in detail may already have holes.
_LAST_DETAILED = f"""
SELECT MIN(last) FROM (
  SELECT MAX(e.step) AS last FROM entries e JOIN signatures s ON s.id = e.signature
  WHERE s.fate = {Fate.NATIVE:d} AND e.wait = 0
    AND e.phase IN ({Phase.FORWARD:d}, {Phase.BACKWARD:d}, {Phase.OPTIMIZER:d})
  GROUP BY e.phase
)
"""


def median_of(counts: Collection[float], number: int) -> float:
    """The median of `number` counts, of two the higher; those that are not among `counts` are zero."""
    at = number // 2 - (number - len(counts))
    return float(sorted(counts)[at]) if counts and at >= 0 else 0.0


def interval(steps: Collection[int]) -> int:
    """Every how many steps something happens, 0 if it does not happen regularly, or too few times to tell."""
    gaps = {after - before for before, after in pairwise(sorted(steps))}
    return gaps.pop() if len(steps) >= _REGULAR and len(gaps) == 1 else 0


def read_walls(rows: Rows, *, only_detailed: bool) -> dict[int, int]:
    """The wall clock in ns of each complete step; with `only_detailed`, of those in full detail.

    Without the time in which the machine was looked at: it is not the program's.
    """
    steps = rows("SELECT step, start_ns, end_ns FROM steps WHERE end_ns IS NOT NULL ORDER BY step")
    walls = {step: end - start for step, start, end in steps}
    starts = [start for _, start, _ in steps]
    for (looks,) in rows("SELECT value FROM meta WHERE key = 'looks'"):
        for begin, end, *_ in json.loads(looks):
            at = bisect_right(starts, begin) - 1
            if at >= 0 and end <= steps[at][2]:
                step = steps[at][0]
                walls[step] = max(0, walls[step] - (end - begin))
    if only_detailed:
        last = last_detailed(rows)
        walls = {step: wall for step, wall in walls.items() if step < last}
    return walls


def within(rows: Rows, step: int) -> str:
    """The condition on an entry `e` that it belongs to a step, with the numbers between which it then lies.

    Entries have no index: with their range known, SQLite does not read through all others for each question.
    """
    first, last = rows(f"SELECT MIN(id), MAX(id) FROM entries WHERE step = {step}")[0]
    return f"(e.step = {step} AND e.id BETWEEN {first or 0} AND {last or 0})"


def last_detailed(rows: Rows) -> int:
    """The step before which every call has kept its detail, in a recording where some have not."""
    return int(rows(_LAST_DETAILED)[0][0] or 0)
