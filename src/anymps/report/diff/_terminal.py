"""A comparison for a terminal or a pipe: verdict, findings, the step side by side, operators, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from anymps.findings import Finding
from anymps.report import _text as text
from anymps.report._console import DEFAULT_WIDTH, QUIET, STYLES, fitting, heading, indented, pairs, printed
from anymps.report.diff import _words as words
from anymps.report.diff._compare import Diff


def render_diff_terminal(diff: Diff, *, width: int | None = None, color: bool = False) -> str:
    """The comparison as text, by default 100 columns wide and without colour."""
    return printed(_parts(diff), fitting(width or DEFAULT_WIDTH), color=color)


def _parts(diff: Diff) -> Iterator[RenderableType]:
    yield Text(words.verdict(diff), style="bold red" if diff.new else "bold green")
    yield pairs([("before", Text(words.side(diff.before))), ("after", Text(words.side(diff.after)))])
    yield from _findings("New findings", diff.new, diff.after.directory)
    yield from _findings("Findings that are gone", diff.gone, diff.before.directory)
    yield from _changed(diff)
    yield from _step(diff)
    yield from _operators(diff)
    memory = words.memory(diff)
    if memory:
        yield from heading("Memory at its peak")
        yield indented(Text(memory))


def _findings(title: str, findings: Sequence[Finding], directory: str) -> Iterator[RenderableType]:
    if not findings:
        return
    yield from heading(title)
    for finding in findings:
        yield indented(_title(finding, directory))
        yield pairs([("  ", Text(text.clean(finding.what)))])


def _title(finding: Finding, directory: str) -> Text:
    return Text.assemble(
        (f"{finding.id} {finding.severity.label}", STYLES[finding.severity]),
        f"  {text.place(finding.site, directory)}  ",
        (text.clean(finding.title), "bold"),
    )


def _changed(diff: Diff) -> Iterator[RenderableType]:
    if not diff.changed:
        return
    yield from heading("Findings in other numbers")
    for change in diff.changed:
        yield indented(_title(change.after, diff.after.directory))
        yield pairs([("  ", Text(words.numbers(change)))])


def _step(diff: Diff) -> Iterator[RenderableType]:
    if not diff.phases:
        yield from heading(diff.step_title, empty=True)
        yield indented(Text("Not compared: a recording without a complete step has none."))
        return
    yield from heading(diff.step_title, "before, after, and after / before of the times")
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
    grid.add_column("phase", no_wrap=True)
    for name in words.step_columns(diff):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in diff.phases:
        if not row.phase:
            grid.add_row()
        grid.add_row(*map(Text, words.step_row(row)), style="" if row.phase else "bold")
    yield indented(grid)


def _operators(diff: Diff) -> Iterator[RenderableType]:
    shown = [(name, Text(", ".join(names))) for name, names in words.operator_rows(diff)]
    if shown:
        yield from heading("Operators without an MPS kernel")
        yield pairs(shown)
