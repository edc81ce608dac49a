"""MPS505 and MPS506: memory that grows from step to step, in tensors or in the allocator's cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from anymps._text import step_name
from anymps.findings._loop import MIN_STEPS, is_library, number
from anymps.findings._memory_limits import line_words
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings.advice import FIXED_SIZES, keep_numbers, without_graph
from anymps.record import Allocation, Category, Holding, Noted, Phase, Recording, Site, StepMemory
from anymps.rules.texts import format_size

LEAST: Final = 1 << 20
"""Bytes a step below which growth is no finding: 1 GiB in a thousand steps. Our own measure."""

_LINES = 3
_ALIKE = 1.25  # peaks of steps that differ by less hold the same work

LEFT = Rule(
    id="MPS505",
    title="Memory grows with every step",
    severity=Severity.WARNING,
    needs_steps=True,
    related_as="also left at",
    why="Memory that a step leaves behind is never freed, so a long run eventually runs out of it.",
    fix=keep_numbers(),
    source="aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15: a buffer is freed with the last tensor on it",
    example=Example(
        bad="""
            kept = []
            for x in batches:
                train(x)
                kept.append(torch.ones(512, 1024, device=device))
        """,
        better={"kept = []\n": "", "kept.append(": "kept = ", "device=device))": "device=device)"},
    ),
)

SHAPES = Rule(
    id="MPS506",
    title="The allocator's cache grows because sizes change",
    severity=Severity.WARNING,
    needs_steps=True,
    why=(
        "A freed buffer goes to the cache, where a larger request cannot reuse it. The cache is not released until "
        "the limit is reached. MPSGraph also compiles a graph for each new shape."
    ),
    fix=f"{FIXED_SIZES} Or start with the largest.",
    source="aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15; pytorch issue #164299",
    example=Example(
        bad="""
            for length, x in zip(range(600, 650, 10), batches):
                scores = torch.empty(length << 20, dtype=torch.uint8, device=device)
                scores[0] = 1
                del scores
                train(x)
        """,
        better={"length <<": "640 <<", "device=device)": "device=device)[: length << 20]"},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about memory that grows; they need as many complete steps as those about waits."""
    if recording.training_steps < MIN_STEPS:
        return
    steps = _complete(recording)
    growth = _growth(steps)
    if growth >= LEAST:
        yield from _left(recording, steps, growth)
    else:
        yield from _shapes(recording, steps)


def growth_per_step(recording: Recording) -> float:
    """By how many bytes a step what is left after it grows, on average; 0 unless every step leaves more.

    The first step counts only as the beginning: it makes the gradients and the optimizer's state.
    """
    return _growth(_complete(recording)) if recording.training_steps >= MIN_STEPS else 0.0


def _complete(recording: Recording) -> list[StepMemory]:
    complete = {step.step for step in recording.steps() if step.complete}
    return [step for step in recording.memory_story.steps() if step.step in complete]


def _growth(steps: Sequence[StepMemory]) -> float:
    if len(steps) < MIN_STEPS - 1:
        return 0.0
    more = [after.after - before.after for before, after in pairwise(steps)]
    return sum(more) / len(more) if min(more) > 0 else 0.0


def _left(recording: Recording, steps: Sequence[StepMemory], growth: float) -> Iterator[Finding]:
    held = _held(recording, {step.step for step in steps[1:]})
    each = len(steps) - 1
    # What the allocator charges may be far above what a tensor asked for, and is a sample without the native core.
    if sum(one.requested for one in held) < each * LEAST / 2:
        return
    lines = _by_line(held)
    first = steps[0].after
    what = (
        f"After each step {format_size(round(growth))} more are left: {format_size(first)} after "
        f"{step_name(steps[0].step)}, {format_size(steps[-1].after)} after {step_name(steps[-1].step)}. Left by steps "
        f"{steps[1].step + 1:,} to {steps[-1].step + 1:,}: {line_words(lines[:_LINES])}."
    )
    fix = ""
    chain = {(one.operator, one.site) for one in held if one.phase is Phase.FORWARD}
    if len(chain) > 1:
        what += f" Results of {len(chain)} operators of the forward outlive their step: their graph is kept."
        fix = f"Something adds up or keeps a result with its graph, which no backward frees. {without_graph()}"
    site, *others = {line.site.file_line: line.site for line in lines[:_LINES]}.values()
    keepers = [note for note in recording.noted("keeps") if not is_library(note.occurrence.site)]
    if len(keepers) == 1:
        yield _kept(keepers[0], what, len(held), each, [site, *others])
        return
    yield LEFT.finding(site, what=what, count=len(held), per_step=len(held) / each, fix=fix, related_sites=others)


def _kept(keeper: Noted, what: str, count: int, steps: int, born: Sequence[Site]) -> Finding:
    """The finding at the line that keeps, where the capture saw one variable hold more and more."""
    name = str(keeper.facts.get("name", ""))
    if keeper.facts.get("graph"):
        first = f"`{name}` keeps the graph of every step."
        fix = without_graph(name)
    else:
        first = f"`{name}` keeps more tensors with every step."
        fix = keep_numbers(name)
    return LEFT.finding(
        keeper.occurrence.site,
        what=f"{first} {what}",
        count=count,
        per_step=count / steps,
        fix=fix,
        related_sites=[place for place in born if place != keeper.occurrence.site],
        related_as="made at",
    )


def _held(recording: Recording, steps: set[int]) -> list[Allocation]:
    """Buffers that one of these steps left to the end of the last of them."""
    allocations = recording.memory_story.allocations
    end = max((one.born for one in allocations if one.step <= max(steps)), default=0)
    ours = (Category.PARAMETERS, Category.BEFORE)
    return [one for one in allocations if one.step in steps and one.category not in ours and one.alive_at(end)]


def _by_line(held: Sequence[Allocation]) -> list[Holding]:
    """The lines and operators that hold most, largest first; those that only once held something come last."""
    sums: dict[tuple[Site, str], list[Allocation]] = defaultdict(list)
    for one in held:
        sums[one.site, one.operator].append(one)
    rows = [
        (len({one.step for one in group}), Holding.of(group, site=site, operator=operator))
        for (site, operator), group in sums.items()
    ]
    rows.sort(key=lambda row: (row[0] < 2, -row[1].bytes, row[1].site.file, row[1].site.line, row[1].operator))
    return [line for _, line in rows]


def _shapes(recording: Recording, steps: Sequence[StepMemory]) -> Iterator[Finding]:
    later = steps[1:]
    if len(later) < MIN_STEPS - 1:
        return
    peaks, reserved = [step.peak for step in later], [step.reserved for step in steps]
    grown = reserved[-1] - reserved[0]
    rises = sum(after > before for before, after in pairwise(reserved))
    if max(peaks) > _ALIKE * min(peaks) or rises < 2 or grown < LEAST * len(later) or reserved[-1] <= 2 * max(peaks):
        return
    varied = _varied(recording, {step.step for step in steps})
    if varied is None:
        return
    site, operator, sizes = varied
    what = (
        f"The allocator took {format_size(grown)} more from {step_name(steps[0].step)} to {step_name(steps[-1].step)}, "
        f"{format_size(reserved[-1])} in all, while tensors never held more than {format_size(max(peaks))}: "
        f"`{operator or 'unknown'}` asked for {number(len(sizes))} different sizes, {format_size(min(sizes))} to "
        f"{format_size(max(sizes))}."
    )
    yield SHAPES.finding(site, what=what, count=rises, per_step=rises / len(later))


def _varied(recording: Recording, steps: set[int]) -> tuple[Site, str, set[int]] | None:
    """The line whose sizes change from step to step and are the largest: place, operator, sizes in bytes."""
    sizes: dict[tuple[Site, str], dict[int, int]] = defaultdict(dict)
    for one in recording.memory_story.allocations:
        if one.step in steps and one.born:
            largest = sizes[one.site, one.operator]
            largest[one.step] = max(largest.get(one.step, 0), one.requested)
    changing = [
        (sum(each.values()), site, operator, set(each.values()))
        for (site, operator), each in sizes.items()
        if len(set(each.values())) >= MIN_STEPS - 1
    ]
    if not changing:
        return None
    _, site, operator, found = max(changing, key=lambda row: (row[0], row[1].known))
    return site, operator, found
