"""MPS412: copies to mps that together take a good part of a step, and how to avoid them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from anymps._text import duration, percent
from anymps.findings._costs import COPY
from anymps.findings._loop import AtLine, by_line, is_every_step, is_library, some_steps, times
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._prices import cost_without, seldom_steps, step_on_mac
from anymps.findings._wait_places import kind_at
from anymps.findings.advice import DATA_SET_ON_MPS, WAITS
from anymps.findings.edits import place_at
from anymps.forecast import Forecast, WaitingLine
from anymps.record import Occurrence, Recording, Wait
from anymps.rules.texts import format_size
from anymps.source import fits

COPIES = Rule(
    id="MPS412",
    title="Copies to mps take a good part of each step",
    severity=Severity.WARNING,
    about_copies=True,
    waits=frozenset({Wait.COPY_TO_MPS}),
    needs_steps=True,
    related_as="also at",
    why=(f"For each copy to mps the host {WAITS}, and then for the copy itself, however small it is."),
    fix=(
        "Make one tensor on the CPU of those with the same shape and dtype (`torch.stack`) and copy that; `unbind` "
        f"takes it apart on mps. {DATA_SET_ON_MPS}"
    ),
    source=f"aten/src/ATen/native/mps/operations/Copy.mm (torch 2.13); {COPY.source}",
    example=Example(
        bad="""
            for x in batches:
                rows = torch.stack([row.to(device) for row in x])
                train(rows)
        """,
        better={"row.to(device) for row in x])": "row for row in x]).to(device)"},
    ),
)

_SHARE: Final = 0.1
"""The part of a step from which on such copies are told."""
_MANY: Final = 4
"""Copies in a step, one soon after another, that are more than a batch and its labels."""
_FEW: Final = 2
"""Operators between two copies of one thing."""
_LARGE: Final = f"{DATA_SET_ON_MPS} Otherwise copy a smaller type, such as `uint8` for images, and convert it on mps."


def find_after(recording: Recording, others: Sequence[Finding]) -> Iterator[Finding]:
    """A finding for the lines of the program that copy parts of a data set, one for many copies, one for large ones.

    A batch that comes from elsewhere has to be copied: only its bytes count, not that the host waits, as a note. What
    few steps copy, such as those with a validation, counts by the time of all steps.
    """
    typical = step_on_mac(recording)
    if typical is None:
        return
    lines = _copying(recording, others)
    routine = [AtLine(line.site, every) for line in lines if (every := _in_every_step(recording, line))]
    yield from _found(recording, typical, 1.0, routine)
    for seldom in seldom_steps(recording):
        there = [line for line in lines if _place(line) in seldom.places]
        yield from _found(recording, seldom.step, seldom.part, there)


def _found(recording: Recording, step: Forecast, part: float, lines: Sequence[AtLine]) -> Iterator[Finding]:
    room = step.mac.recommended_max_memory - recording.memory_story.peak_reserved
    sets = {
        noted.occurrence.site.file_line: (str(noted.facts.get("name", "")), size)
        for noted in recording.noted("data_set")
        if isinstance(size := noted.facts.get("bytes"), int) and size < room
    }
    taken = [line for line in lines if line.site.file_line in sets]
    rest = [line for line in lines if line not in taken]
    many = [line for line in _many(recording, step, lines) if line in rest]
    yield from _told(recording, step, part, taken, fix=_kept(taken, sets))
    yield from _told(recording, step, part, many)
    carried = {wait.place: wait.after for wait in step.waits}
    large = [line for line in rest if line not in many and carried.get(_place(line), 0.0)]
    if part * sum(carried[_place(line)] for line in large) >= _SHARE * step.time.seconds:
        yield from _told(recording, step, part, large, fix=_LARGE, severity=Severity.INFO)


def _copying(recording: Recording, others: Sequence[Finding]) -> list[AtLine]:
    """The lines of the program that copy to mps, and that no other rule is about."""
    about = (finding for finding in others if finding.rule.about_copies)
    told = {site.file_line for finding in about for site in (finding.site, *finding.related_sites)}
    return [
        line
        for line in by_line(wait for wait in recording.waits() if wait.wait is Wait.COPY_TO_MPS)
        if line.site.known and line.site.file_line not in told and not is_library(line.site)
    ]


def _in_every_step(recording: Recording, line: AtLine) -> tuple[Occurrence, ...]:
    return tuple(copies for copies in line.occurrences if is_every_step(recording, copies))


def _many(recording: Recording, step: Forecast, lines: Sequence[AtLine]) -> list[AtLine]:
    """The lines whose copies follow one another, if these are more than a batch and its labels.

    Between the batches of an accumulated step, or of a validation, lies a whole forward.
    """
    recorded = next(one for one in recording.steps() if one.step == step.step)
    places = {_place(line) for line in lines}
    waits = [wait for wait in recording.step_queues(recorded) if kind_at(wait.site, wait.wait) in places]
    near = Counter(kind_at(wait.site, wait.wait) for wait in waits if wait.operators <= _FEW)
    begin = Counter(kind_at(wait.site, wait.wait) for wait in waits if wait.operators > _FEW)
    if near.total() < _MANY * max(1, begin.total()):
        return []
    return [line for line in lines if near[_place(line)] > begin[_place(line)]]


def _told(
    recording: Recording,
    step: Forecast,
    part: float,
    lines: Sequence[AtLine],
    fix: str = "",
    severity: Severity | None = None,
) -> Iterator[Finding]:
    """One finding for lines that together cost enough, at the one with most copies, then most bytes."""
    places = set(map(_place, lines))
    seldom = part < 1.0
    often = sum(line.per_step for line in lines)
    if seldom:
        often = sum(wait.waits for wait in step.waits if wait.place in places)
    cost = cost_without(step, places, often)
    if cost is None or part * cost[1] < _SHARE * 1e9 * step.time.high:
        return
    first, *others = sorted(lines, key=lambda line: (-line.per_step, -line.moved_bytes))
    count, moved = sum(line.count for line in lines), sum(line.moved_bytes for line in lines)
    size = format_size(round(moved * often / count))
    some = some_steps(recording, [occurrence for line in lines for occurrence in line.occurrences])
    whole = "the predicted time of all steps" if seldom else f"a step of {duration(1e9 * step.time.seconds)}"
    yield COPIES.finding(
        first.site,
        what=(
            f"Tensors were copied to mps {times(often)} a step{some}, {size} in all. These copies take about "
            f"{percent(part * cost[1] / (1e9 * step.time.high))} of {whole}."
        ),
        count=count,
        per_step=0.0 if seldom else often,
        cost_ns=COPY.of(count, moved),
        fix=fix,
        severity=severity,
        related_sites=[line.site for line in others],
    )


def _kept(lines: Sequence[AtLine], sets: dict[tuple[str, int], tuple[str, int]]) -> str:
    """The advice for batches that an index takes of tensors, as lines where these are made, if they can be written."""
    names = dict.fromkeys(sets[line.site.file_line] for line in lines)
    held = " and ".join(f"`{name}` ({format_size(size)})" for name, size in names)
    moves = [f"{name} = {name}.to(device)" for name, _ in names]
    places = [place_at(line.site) for line in lines]
    shown = all(place is not None and fits(move, place) for place in places for move in moves)
    how = f": {' and '.join(f'`{move}`' for move in moves)} where {'it is' if len(names) == 1 else 'they are'} made"
    return f"Keep {held} on mps, and index {'it' if len(names) == 1 else 'them'} there{how if shown else ''}."


def _place(line: AtLine) -> WaitingLine:
    return WaitingLine(*kind_at(line.site, Wait.COPY_TO_MPS))
