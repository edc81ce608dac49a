"""The typical step of a recording, and a summary of all steps."""

from __future__ import annotations

from anymps.record._rows import Rows, read_walls
from anymps.record._step_facts import Step, StepSum, StepTable
from anymps.record._walk import Walk


def typical_step(rows: Rows, walk: Walk, table: StepTable, *, only_detailed: bool) -> Step | None:
    """The complete step of median length among those that wait and fall back as the table's typical one does.

    Without the first one if there are others. Where no step has both numbers, among those that come closest.
    """
    walls = read_walls(rows, only_detailed=only_detailed)
    later = list(walls)[1:] or list(walls)
    if not later:
        return None
    waits, fallbacks = (sum(getattr(share, field) for share in table.typical) for field in ("waits", "on_cpu"))
    off = {step: abs(walk.waited(step) - waits) + abs(walk.fallbacks(step) - fallbacks) for step in later}
    alike = [step for step in later if off[step] == min(off.values())]
    number = sorted(alike, key=lambda step: (walls[step], step))[(len(alike) - 1) // 2]
    return Step(*rows(f"SELECT step, start_ns, end_ns FROM steps WHERE step = {number}")[0])


def read_step_sums(rows: Rows, walk: Walk) -> tuple[StepSum, ...]:
    """All complete steps, with the waits and fallbacks in them."""
    walls = read_walls(rows, only_detailed=False)
    return tuple(StepSum(step, wall, walk.waited(step), walk.fallbacks(step)) for step, wall in walls.items())
