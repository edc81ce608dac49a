"""The short report at the end of a run: verdict, what to change first, one table, where the whole report is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from anymps.findings import Finding, Story
from anymps.report import _text as text
from anymps.report._checked import numbers, own_kernels
from anymps.report._notes import STATES, state_of
from anymps.report._predicted import predicted_in_short, time_on_mac
from anymps.report._step import is_idle, total
from anymps.report._words import (
    cost,
    first_to_change,
    how_many,
    place_to_change,
    processes,
    verdict,
    waits,
)
from anymps.report.document import (
    DEFAULT_WIDTH,
    QUIET,
    STATE_STYLES,
    fitting,
    indented,
    look_of,
    pairs,
    printed,
    written_to,
)
from anymps.report.run._waits import waits_without_findings

_MOST_ROWS = 5  # of the table; the rest is one line
_PLACE_WIDTH = 44  # characters that leave a rule and most titles their line of 100; the full report has the whole place


def print_summary(story: Story, findings: Sequence[Finding], stream: TextIO, whole: str = "") -> None:
    """Write the short report to `stream`, as wide as its terminal, coloured if it is one.

    `whole` names where the whole report is: a command or a file; the empty text leaves that line out.
    """
    width, color = look_of(stream)
    written_to(stream, render_summary(story, findings, whole=whole, width=width, color=color))


def render_summary(
    story: Story, findings: Sequence[Finding], *, whole: str = "", width: int = DEFAULT_WIDTH, color: bool = False
) -> str:
    """The short report as text of `width` columns."""
    width = fitting(width)
    return printed(_parts(story, findings, whole), width, color=color)


def _parts(story: Story, findings: Sequence[Finding], whole: str) -> Iterator[RenderableType]:
    judged = story.judge(findings)
    predicted = "" if judged.stops else predicted_in_short(story)
    yield Text.assemble(
        (verdict(story, findings)[0], STATE_STYLES[state_of(findings, judged)]),
        " ",
        " ".join(filter(None, (how_many(findings), predicted))),
    )
    first = first_to_change(findings)
    if first is not None:
        yield from _change(first, cost(first, story.timed), story.run.directory)
    others = [finding for finding in findings if finding is not first]
    if others:
        yield from _table(others, story.run.directory, "Then:" if first is not None else "Findings:")
    if not judged.stops and (time := time_on_mac(story)):
        yield Text(time)
    if not findings and (told := waits_without_findings(story, findings)):
        yield Text(told)
    step = _step(story, findings)
    if step:
        yield Text(step)
    if joined := processes(story):
        yield Text(joined)
    made = story.run, story.operators
    yield from (Text(told.in_short) for told in (own_kernels(*made), numbers(*made)) if told is not None)
    if whole:
        # In one piece, however long: it is a command to copy.
        yield Text.assemble("Full report: ", (text.clean(whole), "bold"), no_wrap=True, overflow="ignore")


def _change(finding: Finding, much: str, directory: str) -> Iterator[RenderableType]:
    where = _where(finding, directory)
    costs = (f", costs {much}" if where else f" {much}") if much else ""
    yield Text.assemble("Change first:", (f" {where}" if where else "", "bold"), costs)
    rows = [(finding.id, Text(finding.title))]
    if finding.site.source:
        rows.append(("line", Text(text.clean(finding.site.source.strip()), "bold")))
    if finding.caller:
        rows[1:] = [("within", Text(text.place(finding.site, directory)))]
    rows.append(("fix", Text(text.clean(finding.fix), "green")))
    yield pairs(rows)


def _where(finding: Finding, directory: str) -> str:
    """The place to change, and nothing for a finding about the whole run."""
    return place_to_change(finding, directory) if finding.site.known else ""


def _table(findings: Sequence[Finding], directory: str, heading: str) -> Iterator[RenderableType]:
    """The other findings, one row each, the most severe first."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    shown = findings[:_MOST_ROWS]
    are_placed = any(finding.site.known for finding in shown)
    for _ in range(2 + are_placed):
        grid.add_column(overflow="fold")
    for finding in shown:
        grid.add_row(
            Text(f"{finding.id} {finding.severity.word}", STATE_STYLES[STATES[finding.severity]]),
            *([Text(text.without_folders(_where(finding, directory), _PLACE_WIDTH))] if are_placed else []),
            Text(finding.title),
        )
    yield Text(heading)
    yield indented(grid)
    if len(findings) > _MOST_ROWS:
        yield indented(Text(f"and {len(findings) - _MOST_ROWS:,} more", QUIET))


def _step(story: Story, findings: Sequence[Finding]) -> str:
    """What a step does and how much memory the run took, in one line."""
    table = story.step_table
    parts: list[str] = []
    if table.first and not is_idle(table):
        whole = total(table.typical)
        parts.append(
            f"A step: {text.count(whole.on_mps) or '0'} operators on mps, {text.count(whole.on_cpu) or '0'} on the CPU."
        )
    parts.append(waits(story, findings))
    peak = story.memory.peak
    if peak is not None:
        limits = story.memory_limits
        of = f" of {text.size(limits.working_set)}" if limits is not None else ""
        parts.append(f"Memory: {text.size(peak.allocated) or 'nothing'}{of}.")
    return " ".join(filter(None, parts))
