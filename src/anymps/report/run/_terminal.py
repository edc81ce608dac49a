"""The report for a terminal or a pipe: verdict, step table, findings, the script line by line, environment, limits.

Everything that comes from the script is a `Text`, never markup, so nothing in it can change how the report looks.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from anymps.findings import Finding
from anymps.record import Line, Recording
from anymps.report import _text as text
from anymps.report._columns import fitted_table
from anymps.report._console import DEFAULT_WIDTH, QUIET, STYLES, fitting, heading, indented, pairs, printed
from anymps.report._memory_rows import CATEGORY_COLUMNS, LINE_COLUMNS, memory_rows
from anymps.report._memory_rows import NUMBERS as MEMORY_NUMBERS
from anymps.report._predicted import ON_MAC, mac_times, predicted_sentence
from anymps.report._step_rows import COLUMNS, NO_STEP, by_place, caption, cells, is_idle, remarks, title, total
from anymps.report._suite import subject
from anymps.report._words import cost, environment, fact, limits, seen_in, source_words, state, times, verdict
from anymps.report.run._wait_rows import BELONGING_COLUMNS, NUMBERS, wait_rows

_ROOMY = 80  # below, the source line needs the room of the column that is twice another one
_MOST_LINES = 60  # of the script; the rest is summed up

_COLUMN_STYLES = {"on CPU": "yellow", "waits": "yellow", "by fallback": "yellow", "share": "dim"}
_BROKEN = ("waits for", "why", "what")  # columns whose cells may break between words
_LESS_IMPORTANT = ("host", "work", "queued", "a step", "stands still")  # of waits: left out where there is no room
_WHERE_ANY = ("by fallback", ON_MAC)  # columns of the step table that are left out where they are empty
_ALWAYS = ("line", "on mps", "on CPU", "waits")  # columns that are shown even where they are empty


@dataclass(frozen=True)
class TerminalRenderer:
    """The report as text of `width` columns, with colour or without any control sequences."""

    width: int = DEFAULT_WIDTH
    color: bool = False

    @property
    def name(self) -> str:
        """`terminal`."""
        return "terminal"

    def pieces(self, recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
        """The whole report, in one piece."""
        yield self.render(recording, findings)

    def render(self, recording: Recording, findings: Sequence[Finding]) -> str:
        """The whole report; every line ends with a line feed."""
        width = fitting(self.width)
        return printed(_parts(recording, findings, width), width, color=self.color)


def render_terminal(
    recording: Recording, findings: Sequence[Finding], *, width: int | None = None, color: bool | None = None
) -> str:
    """The report as text, by default 100 columns wide and without colour."""
    return TerminalRenderer(width or DEFAULT_WIDTH, bool(color)).render(recording, findings)


def print_terminal(
    recording: Recording,
    findings: Sequence[Finding],
    stream: TextIO | None = None,
    *,
    width: int | None = None,
    color: bool | None = None,
) -> None:
    """Write the report to `stream` (by default standard output), as wide as its terminal and coloured if it is one.

    `NO_COLOR` (no-color.org) and `TERM=dumb` switch colour off. Characters that the stream cannot encode are replaced.
    """
    target = sys.stdout if stream is None else stream
    width, color = look_of(target, width, color)
    written_to(target, render_terminal(recording, findings, width=width, color=color))


def look_of(target: TextIO, width: int | None, color: bool | None) -> tuple[int, bool]:
    """How wide and whether in colour a text for `target` is, where neither was asked for."""
    terminal = target.isatty()
    if color is None:
        color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if width is None:
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if terminal else DEFAULT_WIDTH
    return width, color


def written_to(target: TextIO, report: str) -> None:
    """Write a text, with a mark in the place of each character that `target` cannot encode."""
    encoding = getattr(target, "encoding", None) or "utf-8"
    target.write(report.encode(encoding, "replace").decode(encoding))


def _parts(recording: Recording, findings: Sequence[Finding], width: int) -> Iterator[RenderableType]:
    worst = state(recording, findings)
    first, *others = verdict(recording, findings)
    yield Text(first, style=STYLES.get(worst, "bold green") if worst is not None else "bold green")
    for sentence in others:
        yield Text(sentence)
    if sentence := predicted_sentence(recording):
        yield Text(sentence)
    yield from _step(recording, width)
    yield from _waits(recording, findings, width)
    yield from _memory(recording, width)
    yield from _findings(recording, findings)
    yield from _lines(recording, width)
    yield from heading("Environment")
    yield pairs([(name, Text(value)) for name, value in environment(recording)])
    yield from heading("Limits")
    for sentence in limits(recording) or ["None that this report knows of."]:
        yield pairs([("-", Text(sentence))])


def _step(recording: Recording, width: int) -> Iterator[RenderableType]:
    table = recording.step_table()
    if is_idle(table):
        return
    if not table.first:
        yield from heading(title(recording))
        yield Text(f"  {NO_STEP}")
        return
    shares = table.typical
    yield from heading(title(recording), caption(table))
    whole, first = total(shares), total(table.first)
    on_mac = mac_times(recording)
    rows = [
        (share.phase.label, cells(share, whole.time_ns, on_mac(share.phase))) for share in sorted(shares, key=by_place)
    ]
    sums = [("whole step", cells(whole, 0.0, on_mac(None)))]
    sums += [("first step", cells(first, 0.0))] if table.median else []
    columns = _columns([*rows, *sums], width - 4)
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
    for column in columns:
        grid.add_column(column.header, style=column.style, justify=column.justify, no_wrap=True)
    for number in range(len(rows) + len(sums)):
        if number == len(rows):
            grid.add_row()
        style = "" if number < len(rows) else "bold" if number == len(rows) else QUIET
        grid.add_row(*(Text(column.cells[number]) for column in columns), style=style)
    yield indented(grid)
    sentences = remarks(recording, table)
    if sentences:
        yield Text()
        yield indented(Text(" ".join(sentences)))


def _waits(recording: Recording, findings: Sequence[Finding], width: int) -> Iterator[RenderableType]:
    rows = wait_rows(recording, findings)
    if rows is None:
        return
    remark = f"{text.plural(len(rows.hurting), 'line')} in the steps" if rows.hurting else ""
    remark = remark or ("" if rows.remarks else "all fine as they are")
    yield from heading("Waits", remark)
    if rows.hurting:
        yield indented(
            fitted_table(
                rows.columns, rows.hurting, width - 4, numbers=NUMBERS, wrapped=_BROKEN, left_out=_LESS_IMPORTANT
            )
        )
        yield Text()
    for sentence in rows.remarks:
        yield indented(Text(sentence))
    if rows.belonging:
        if rows.remarks:
            yield Text()
        if rows.remarks:
            yield indented(Text("Fine as they are:"))
        yield indented(
            fitted_table(
                BELONGING_COLUMNS, rows.belonging, width - 4, numbers=("times",), wrapped=_BROKEN, titled=False
            )
        )
        if rows.left_out:
            yield indented(Text(rows.left_out))


def _memory(recording: Recording, width: int) -> Iterator[RenderableType]:
    rows = memory_rows(recording)
    if rows is None:
        return
    yield from heading("Memory")
    for sentence in rows.sentences:
        yield indented(Text(sentence))
    tables = ((CATEGORY_COLUMNS, rows.categories, rows.beyond), (LINE_COLUMNS, rows.lines, ()))
    for columns, cells_of, quiet in tables:
        if cells_of:
            yield Text()
            yield indented(
                fitted_table(columns, cells_of, width - 4, numbers=MEMORY_NUMBERS, wrapped=_BROKEN, quiet=quiet)
            )


@dataclass(frozen=True)
class _Column:
    header: str
    cells: list[str]
    style: str = ""
    justify: JustifyMethod = "right"

    @property
    def width(self) -> int:
        return max(map(len, (self.header, *self.cells))) + 2


def _columns(rows: Sequence[tuple[str, list[str]]], width: int) -> list[_Column]:
    """The step table's columns, the least important left out until they fit."""
    table = list(zip(*(row for _, row in rows), strict=True))
    columns = [_Column("phase", [name for name, _ in rows], justify="left")]
    columns += [
        _Column(name, list(column), _COLUMN_STYLES.get(name, "")) for name, column in zip(COLUMNS, table, strict=True)
    ]
    columns = [column for column in columns if column.header not in _WHERE_ANY or any(column.cells)]
    for header in ("by fallback", "share", "to CPU", "to mps"):
        if sum(column.width for column in columns) > width:
            columns = [column for column in columns if column.header != header]
    return columns


def _findings(recording: Recording, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    yield from heading("Findings", "" if findings else "none", empty=not findings)
    directory = fact(recording, "directory")
    for number, finding in enumerate(findings):
        if number:
            yield Text()
        style = STYLES[finding.severity]
        yield Text.assemble((f"{finding.id} {finding.severity.label}", style), "  ", (finding.title, "bold"))
        rows = [("where", Text(_where(finding, directory)))]
        if finding.site.source:
            rows.append(("", _source(finding.site.source)))
        for site in finding.related_sites:
            rows.append((finding.related_as, Text(text.place(site, directory))))
            if site.source:
                rows.append(("", _source(site.source)))
        rows.append(("what", Text(text.clean(finding.what))))
        rows.append(("times", Text(times(finding))))
        if seen := seen_in(recording, finding):
            rows.append(("seen in", Text(seen)))
        if cost(finding):
            rows.append(("cost", Text(cost(finding))))
        rows += [
            ("why", Text(finding.why)),
            ("fix", Text(text.clean(finding.fix), "green")),
            ("source", Text(finding.source, QUIET)),
        ]
        yield pairs(rows)


def _where(finding: Finding, directory: str) -> str:
    where = text.place(finding.site, directory)
    function = text.clean(finding.site.function)
    return f"{where} in {function}" if function and function != "<module>" else where


def _source(line: str) -> Text:
    return Text(f"| {text.clean(line.strip())}", "bold")


def _lines(recording: Recording, width: int) -> Iterator[RenderableType]:
    lines = recording.lines()
    remark = "counts of the whole run" if lines else "nothing reached mps"
    yield from heading(f"Your {subject(recording)}, line by line", remark, empty=not lines)
    known = [line for line in lines if line.file]
    kept = set(sorted(known, key=_interest, reverse=True)[:_MOST_LINES])
    kept_lines = [line for line in known if line in kept]
    directory = fact(recording, "directory")
    columns = [column for column in _line_columns(kept_lines) if column.header in _ALWAYS or any(column.cells)]
    if width < _ROOMY:
        columns = [column for column in columns if column.header != "changes"]
    blocks: list[Group] = []
    for file, group in groupby(range(len(kept_lines)), key=lambda row: kept_lines[row].file):
        title = Text(text.module(file, directory), "bold")
        blocks.append(Group(title, _line_table(columns, kept_lines, list(group), width, directory)))
    left = [line for line in known if line not in kept]
    if left:
        blocks.append(Group(Text(f"{text.plural(len(left), 'more line')}: {_sum_words(left)}.")))
    unknown = [line for line in lines if not line.file]
    if unknown:
        blocks.append(Group(Text(f"Without a line of yours: {_sum_words(unknown)}.")))
    for number, block in enumerate(blocks):
        if number:
            yield Text()
        yield indented(block)


def _line_table(
    columns: Sequence[_Column], lines: Sequence[Line], rows: Sequence[int], width: int, directory: str
) -> Table:
    """Some rows of the line table; all files have columns of one width."""
    room = max(width - sum(column.width for column in columns) - 4, 8)
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
    for column in columns:
        grid.add_column(column.header, style=column.style, justify="right", no_wrap=True, min_width=column.width - 2)
    grid.add_column("source", no_wrap=True)
    for row in rows:
        source = source_words(lines[row], directory, room)
        grid.add_row(*(Text(column.cells[row]) for column in columns), Text(source))
    return grid


def _interest(line: Line) -> tuple[int, ...]:
    return (line.refused, line.on_cpu, line.waits, line.on_mps)


def _line_columns(lines: Sequence[Line]) -> list[_Column]:
    return [
        _Column("line", [str(line.line) for line in lines], QUIET),
        _Column("on mps", [text.count(line.on_mps) for line in lines]),
        _Column("on CPU", [text.count(line.on_cpu) for line in lines], "yellow"),
        _Column("changes", [text.count(line.backend_changes) for line in lines], "yellow"),
        _Column("waits", [text.count(line.waits) for line in lines], "yellow"),
        _Column("refused", [text.count(line.refused) for line in lines], "bold red"),
    ]


def _sum_words(lines: Sequence[Line]) -> str:
    counts = {
        "on mps": sum(line.on_mps for line in lines),
        "on CPU": sum(line.on_cpu for line in lines),
        "waits": sum(line.waits for line in lines),
        "refused": sum(line.refused for line in lines),
    }
    return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number) or "nothing"
