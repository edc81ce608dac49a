"""MPS412: lines that copy to mps many times a step, where that is a good part of the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps._text import duration, percent
from anymps.findings._costs import COPY
from anymps.findings._example import Example
from anymps.findings._loop import AtLine, by_line, is_every_step, is_library, some_steps, times
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._prices import cost_without, step_on_mac
from anymps.findings._wait_places import kind_at
from anymps.forecast import Forecast, Place
from anymps.record import Recording, Wait

MANY = Rule(
    id="MPS412",
    title="Many small copies to mps in every step",
    severity=Severity.WARNING,
    about_copies=True,
    waits=frozenset({Wait.COPY_TO_MPS}),
    needs_steps=True,
    why=(
        "For each copy to mps the host waits until the GPU has finished all queued work, and then for the copy itself, "
        "however small it is."
    ),
    fix=(
        "Make one tensor of them on the CPU (`torch.stack`) and copy that, or keep the data set on mps, if it fits, "
        "and take the batch there."
    ),
    source=f"aten/src/ATen/native/mps/operations/Copy.mm (torch 2.13); {COPY.source}",
    example=Example(
        bad="""
            for x in batches:
                rows = torch.stack([row.to(device) for row in x])
                train(rows)
        """,
        good="""
            for x in batches:
                rows = torch.stack([row for row in x]).to(device)
                train(rows)
        """,
    ),
)

RULES = (MANY,)

_SHARE: Final = 0.1
"""The part of a step from which on such copies are told."""
_MANY: Final = 4
"""Copies of a line in a step that are more than a batch and its labels."""
_FEW: Final = 2
"""Operators between two copies of one thing."""


def find(recording: Recording) -> Iterator[Finding]:
    """A finding for each line of the program whose copies no other rule is about."""
    step = step_on_mac(recording)
    if step is None:
        return
    told = {note.occurrence.site.file_line for what in ("born", "constant") for note in recording.noted(what)}
    told |= {note.occurrence.site.file_line for note in recording.noted("round_trip")}
    told |= {use.site.file_line for use in recording.cpu_indices()}
    copies = (wait for wait in recording.waits() if wait.wait is Wait.COPY_TO_MPS and is_every_step(recording, wait))
    # Between the batches of an accumulated step lies a whole forward and backward.
    close = {
        kind_at(queue.site, queue.wait) for queue in recording.queues() if queue.measured and queue.operators <= _FEW
    }
    for line in by_line(copies):
        if kind_at(line.site, Wait.COPY_TO_MPS) not in close:
            continue
        known = line.site.known and line.site.file_line not in told and not is_library(line.site)
        if known and line.per_step >= _MANY:
            yield from _many(recording, line, step)


def _many(recording: Recording, line: AtLine, step: Forecast) -> Iterator[Finding]:
    cost = cost_without(step, [Place(*line.site.file_line, Wait.COPY_TO_MPS)], line.per_step)
    if cost is None or cost[1] < _SHARE * 1e9 * step.time.high:
        return
    often = f"{times(line.per_step)} a step{some_steps(recording, line.occurrences)}"
    yield MANY.finding(
        line.site,
        what=(
            f"Tensors were copied to mps {often}. These copies take about {percent(cost[1] / (1e9 * step.time.high))} "
            f"of a step of {duration(1e9 * step.time.seconds)}."
        ),
        count=line.count,
        per_step=line.per_step,
        cost_ns=COPY.of(line.count, line.moved_bytes),
    )
