"""The step table: operators, waits, bytes and wall clock of a training step, by phase."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from anymps.record._facts import PhaseShare, RareWork, StepTable
from anymps.record._vocabulary import Fate, Phase

if TYPE_CHECKING:
    from anymps.record._walk import Walk

Rows = Callable[[str], list[tuple[Any, ...]]]

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


def read_step_table(rows: Rows, walk: Walk, *, only_detailed: bool) -> StepTable:
    """The table from what a walk through all calls found. With `only_detailed`, without steps that lack detail."""
    walls = read_walls(rows, only_detailed=only_detailed)
    sums = {step: {phase: list(numbers) for phase, numbers in walk.shares[step].items()} for step in walls}
    for step, phases in sums.items():
        rest = walls[step] - sum(numbers[-1] for numbers in phases.values())
        phases[walk.last_phases.get(step, Phase.OTHER)][-1] += rest
    steps = list(sums.values())
    median = _shares(steps[1:], lambda column: median_of(column, len(column)))
    return StepTable(
        averaged=len(steps[1:]),
        mean=_shares(steps[1:], lambda column: sum(column) / len(column)),
        median=median,
        first=_shares(steps[:1], max),
        rare=_rare(sums, median),
    )


def median_of(counts: Collection[float], number: int) -> float:
    """The median of `number` counts, of two the higher; those that are not among `counts` are zero."""
    at = number // 2 - (number - len(counts))
    return float(sorted(counts)[at]) if counts and at >= 0 else 0.0


def interval(steps: Collection[int]) -> int:
    """Every how many steps something happens, 0 if it does not happen regularly, or too few times to tell."""
    gaps = {after - before for before, after in pairwise(sorted(steps))}
    return gaps.pop() if len(steps) >= _REGULAR and len(gaps) == 1 else 0


def read_walls(rows: Rows, *, only_detailed: bool) -> dict[int, int]:
    """The wall clock in ns of each complete step; with `only_detailed`, of those in full detail."""
    walls: dict[int, int] = dict(
        rows("SELECT step, end_ns - start_ns FROM steps WHERE end_ns IS NOT NULL ORDER BY step")
    )
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


def _shares(steps: list[dict[Phase, list[float]]], of: Callable[[Sequence[float]], float]) -> tuple[PhaseShare, ...]:
    """One share per phase, each number made `of` those of `steps`; nothing for no step."""
    if not steps:
        return ()
    shares = []
    for phase in Phase:
        columns = zip(*(step[phase] for step in steps), strict=True)
        shares.append(PhaseShare(phase, *(of(column) for column in columns)))
    return tuple(shares)


def _rare(sums: dict[int, dict[Phase, list[float]]], median: Sequence[PhaseShare]) -> RareWork | None:
    """What few steps do beyond the median; None where most differ anyway, as they do in a text generation."""
    usual = [sum(column) for column in zip(*((it.on_mps, it.on_cpu, it.waits) for it in median), strict=True)]
    counts = {step: [sum(row[field] for row in rows.values()) for field in (0, 2, 3)] for step, rows in sums.items()}
    first, *later = counts or [0]
    more = [step for step in later if any(it > had for it, had in zip(counts[step], usual, strict=True))]
    if not more or 2 * sum(counts[step] == usual for step in later) < len(later):
        return None
    beyond = (max(0.0, *(counts[step][field] - usual[field] for step in more)) for field in range(3))
    # The first step does more anyway. It decides only where those after it are too few.
    return RareWork(len(more), interval(more) or interval([first, *more]), *map(int, beyond))
