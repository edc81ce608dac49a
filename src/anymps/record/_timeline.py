"""What steps took: by phase and in the typical step, in brief, and one of them on tracks as a drawing needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from anymps._vocabulary import Flag, Phase, Wait
from anymps.record._facts import Site
from anymps.record._rows import Rows, interval, median_of, read_walls, within
from anymps.record._step_facts import PHASE_NUMBERS, PhaseShare, RareWork, Span, Step, StepSum, StepTable, StepTimeline
from anymps.record._walk import Walk
from anymps.record.format import ON_CPU, ON_MPS

_FEW = 2  # steps that cannot be said to be alike
# SQLite takes the other columns of a group from the row that holds the maximum (sqlite.org/lang_select.html, "bare
# columns in an aggregate query"): those of the longest call.
_SPANS = """
SELECT MIN(e.start_ns), MAX(e.start_ns + e.duration_ns), COUNT(*), e.phase, e.wait, o.name, e.site, MAX(e.duration_ns)
FROM entries e JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator
WHERE {within} AND {condition}
GROUP BY (e.start_ns - {start}) * {resolution} / {length}, {key} ORDER BY 1, 2
"""


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


def read_timeline(rows: Rows, site: Callable[[int], Site], step: Step, resolution: int) -> StepTimeline:
    """Read the tracks of a complete step, in spans no finer than a `resolution`-th of it."""
    end = step.start_ns if step.end_ns is None else step.end_ns
    length = max(end - step.start_ns, 1)
    inside = within(rows, step.step)

    def spans(condition: str, key: str) -> list[Span]:
        found = rows(
            _SPANS.format(
                within=inside, condition=condition, start=step.start_ns, resolution=resolution, length=length, key=key
            )
        )
        return [_span(row, site, step.start_ns, end) for row in found]

    gap = length // resolution
    return StepTimeline(
        step=step,
        phases=_without_gaps(spans(f"NOT e.flags & {Flag.PAIR:d}", "e.phase"), step.start_ns, end),
        on_mps=_joined(spans(f"{ON_MPS} AND NOT e.flags & {Flag.VIEW:d}", "e.step"), gap),
        on_cpu=_joined(spans(ON_CPU, "e.step"), gap),
        waits=_joined(spans("e.wait <> 0", "e.wait"), gap),
    )


def read_step_sums(rows: Rows, walk: Walk) -> tuple[StepSum, ...]:
    """All complete steps, with the waits and fallbacks in them."""
    walls = read_walls(rows, only_detailed=False)
    return tuple(StepSum(step, wall, walk.waited(step), walk.fallbacks(step)) for step, wall in walls.items())


def _span(row: tuple[Any, ...], site: Callable[[int], Site], start: int, end: int) -> Span:
    since, until, count, phase, wait, operator, identity, _ = row
    since = min(max(since, start), end)
    return Span(since, min(max(until, since), end), count, Phase(phase), Wait(wait), operator, site(identity))


def _joined(spans: list[Span], gap: int) -> tuple[Span, ...]:
    """Spans of the same wait that lie no more than `gap` apart, joined."""
    result: list[Span] = []
    for span in spans:
        last = result[-1] if result else None
        if last is None or span.wait is not last.wait or span.start_ns > last.end_ns + gap:
            result.append(span)
            continue
        longest = max(last, span, key=lambda candidate: candidate.end_ns - candidate.start_ns)
        result[-1] = replace(
            longest,
            start_ns=last.start_ns,
            end_ns=max(last.end_ns, span.end_ns),
            count=last.count + span.count,
        )
    return tuple(result)


def _without_gaps(spans: list[Span], start: int, end: int) -> tuple[Span, ...]:
    """Phases one after the other: the time before a call belongs to its phase, the rest of the step to the last."""
    result: list[Span] = []
    clock = start
    for span in spans:
        until = max(span.end_ns, clock)
        if result and span.phase is result[-1].phase:
            result[-1] = replace(result[-1], end_ns=until, count=result[-1].count + span.count)
        elif until > clock or not result:
            result.append(replace(span, start_ns=clock, end_ns=until))
        clock = until
    if result:
        result[-1] = replace(result[-1], end_ns=end)
    return tuple(result)


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
