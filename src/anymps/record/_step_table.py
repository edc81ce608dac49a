"""What steps took: by phase, in the typical step, and in brief."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from anymps._vocabulary import Phase
from anymps.record._rows import Rows, interval, median_of, read_walls
from anymps.record._step_facts import PHASE_NUMBERS, PhaseShare, RareWork, Step, StepSum, StepTable
from anymps.record._walk import Walk

_FEW = 2  # steps that cannot be said to be alike


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
    return tuple(
        StepSum(step, wall, walk.waited(step), walk.fallbacks(step), walk.on_mps(step)) for step, wall in walls.items()
    )


def read_step_table(rows: Rows, walk: Walk, *, only_detailed: bool) -> StepTable:
    """The table from what a walk through all calls found. With `only_detailed`, without steps that lack detail."""
    walls = read_walls(rows, only_detailed=only_detailed)
    sums = {step: dict(walk.shares[step]) for step in walls}
    for step, phases in sums.items():
        rest = walls[step] - sum(share.time_ns for share in phases.values())
        last = walk.last_phases.get(step, Phase.OTHER)
        phases[last] = replace(phases[last], time_ns=phases[last].time_ns + rest)
    steps = list(sums.values())
    median = _shares(steps[1:], lambda column: median_of(column, len(column)))
    return StepTable(
        averaged=len(steps[1:]),
        mean=_shares(steps[1:], lambda column: sum(column) / len(column)),
        median=median,
        first=_shares(steps[:1], max),
        rare=_rare(sums, median),
    )


def _shares(steps: list[dict[Phase, PhaseShare]], of: Callable[[Sequence[float]], float]) -> tuple[PhaseShare, ...]:
    """One share per phase, each number made `of` those of `steps`; nothing for no step."""
    if not steps:
        return ()
    return tuple(
        PhaseShare(phase, **{name: of([getattr(step[phase], name) for step in steps]) for name in PHASE_NUMBERS})
        for phase in Phase
    )


def _rare(sums: dict[int, dict[Phase, PhaseShare]], median: Sequence[PhaseShare]) -> RareWork | None:
    """What few steps do beyond the median; None where most differ anyway, as they do in a text generation."""
    usual = _counts(median)
    counts = {step: _counts(shares.values()) for step, shares in sums.items()}
    first, *later = counts or [0]
    more = [step for step in later if any(has > had for has, had in zip(counts[step], usual, strict=True))]
    if not more or 2 * sum(counts[step] == usual for step in later) < len(later):
        return None
    beyond = [max(0.0, *(counts[step][field] - usual[field] for step in more)) for field in range(3)]
    # The first step does more anyway. It decides only where those after it are too few.
    every = interval(more) or interval([first, *more])
    # What one of many does is none of what they do: a validation beside a log of every tenth step.
    most = [sum(2 * (counts[step][field] - usual[field]) >= beyond[field] for step in more) for field in range(3)]
    return RareWork(len(more), every if len(more) <= _FEW or min(most) > 1 else 0, *map(int, beyond))


def _counts(shares: Iterable[PhaseShare]) -> list[float]:
    """How many operators ran on mps and on the CPU, and how many calls waited, over all phases."""
    return [sum(column) for column in zip(*((one.on_mps, one.on_cpu, one.waits) for one in shares), strict=True)]
