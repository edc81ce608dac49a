"""The step table: operators, waits, bytes and wall clock of a training step, by phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anymps.record._facts import PhaseShare, StepTable
from anymps.record._vocabulary import Fate, Phase

if TYPE_CHECKING:
    from anymps.record._walk import Walk

Rows = Callable[[str], list[tuple[Any, ...]]]

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
    return StepTable(averaged=len(steps[1:]), mean=_means(steps[1:]), first=_means(steps[:1]))


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


def _means(steps: list[dict[Phase, list[float]]]) -> tuple[PhaseShare, ...]:
    """One share per phase, averaged over `steps`; nothing for no step."""
    if not steps:
        return ()
    shares = []
    for phase in Phase:
        columns = zip(*(step[phase] for step in steps), strict=True)
        shares.append(PhaseShare(phase, *(sum(column) / len(steps) for column in columns)))
    return tuple(shares)
