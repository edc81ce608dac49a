"""The step table: operators, waits, bytes and wall clock of a training step, by phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anymps.record._facts import PhaseShare, StepTable
from anymps.record._schema import ON_CPU, ON_MPS
from anymps.record._vocabulary import Direction, Fate, Flag, Phase

Rows = Callable[[str], list[tuple[Any, ...]]]

# Entries may overlap (a fallback holds its copies, autograd has a thread of its own), so an entry adds what lies
# between the latest end seen so far and its own end, both kept inside the step.
_SHARES = f"""
WITH timed AS (
  SELECT e.step, e.phase, {ON_MPS} AS on_mps, {ON_CPU} AS on_cpu, e.wait <> 0 AS waits,
    e.direction, e.flags, e.moved_bytes,
    MIN(MAX(e.start_ns + e.duration_ns, c.start_ns), c.end_ns) AS until,
    COALESCE(MAX(MIN(MAX(e.start_ns + e.duration_ns, c.start_ns), c.end_ns)) OVER (
      PARTITION BY e.step ORDER BY e.start_ns, e.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), c.start_ns) AS since
  FROM entries e JOIN steps c ON c.step = e.step AND c.end_ns IS NOT NULL
  JOIN signatures s ON s.id = e.signature
  WHERE NOT e.flags & {Flag.PAIR:d}
)
SELECT step, phase, SUM(on_mps), SUM(on_mps AND flags & {Flag.VIEW:d}), SUM(on_cpu), SUM(waits),
  SUM((direction = {Direction.CPU_TO_MPS:d}) * moved_bytes), SUM((direction = {Direction.MPS_TO_CPU:d}) * moved_bytes),
  SUM((on_cpu AND direction = 0) * moved_bytes), SUM(MAX(until - since, 0))
FROM timed GROUP BY step, phase
"""

_LAST_PHASES = f"SELECT step, phase, MAX(start_ns) FROM entries WHERE NOT flags & {Flag.PAIR:d} GROUP BY step"

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


def read_step_table(rows: Rows, *, only_detailed: bool) -> StepTable:
    """Read the table through `rows`, which runs a query. With `only_detailed`, leave out steps without full detail."""
    walls = read_walls(rows, only_detailed=only_detailed)
    sums = {step: {phase: [0.0] * 8 for phase in Phase} for step in walls}
    for step, phase, *numbers in rows(_SHARES):
        if step in sums:
            sums[step][phase] = [float(number) for number in numbers]
    ends = {step: phase for step, phase, _ in rows(_LAST_PHASES)}
    for step, phases in sums.items():
        rest = walls[step] - sum(numbers[-1] for numbers in phases.values())
        phases[ends.get(step, Phase.OTHER)][-1] += rest
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
