"""The report for a terminal or a pipe: verdict, step table, findings, the script line by line, environment, limits.

Everything that comes from the script is a `Text`, never markup, so nothing in it can change how the report looks.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anymps.findings import Finding, Severity
from anymps.record import Line, Phase, PhaseShare, Recording
from anymps.report import _text as text
from anymps.report._words import environment, fact, limits, verdict

DEFAULT_WIDTH = 100
_NARROWEST, _WIDEST = 60, 120  # below, tables fall apart; above, sentences are hard to read
_ROOMY = 80  # below, the source line needs the room of the column that is twice another one
_MOST_LINES = 60  # of the script; the rest is summed up

_HEADING = "bold cyan"
_QUIET = "dim"
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}

_ALWAYS = ("line", "on mps", "on CPU", "waits")  # columns that are shown even where they are empty

# A step's own order; `other` comes last.
_PHASES = (*list(Phase)[1:], Phase.OTHER)


@dataclass(frozen=True)
class TerminalRenderer:
    """The report as text of `width` columns, with colour or without any control sequences."""

    width: int = DEFAULT_WIDTH
    color: bool = False

    @property
    def name(self) -> str:
        """`terminal`."""
        return "terminal"

    def render(self, recording: Recording, findings: Sequence[Finding]) -> str:
        """The whole report; every line ends with a line feed."""
        stream = io.StringIO()
        console = Console(
            file=stream,
            width=max(_NARROWEST, min(self.width, _WIDEST)),
            force_terminal=self.color,
            color_system="standard" if self.color else None,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
            legacy_windows=False,
        )
        for part in _parts(recording, findings, console.width):
            console.print(part)
        if self.color:
            return stream.getvalue()
        return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


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
    terminal = target.isatty()
    if color is None:
        color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if width is None and terminal:
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    report = render_terminal(recording, findings, width=width, color=color)
    encoding = getattr(target, "encoding", None) or "utf-8"
    target.write(report.encode(encoding, "replace").decode(encoding))


def _parts(recording: Recording, findings: Sequence[Finding], width: int) -> Iterator[RenderableType]:
    worst = min((finding.severity for finding in findings), default=None)
    first, *others = verdict(recording, findings)
    yield Text(first, style=_STYLES.get(worst, "bold green") if worst is not None else "bold green")
    for sentence in others:
        yield Text(sentence)
    yield from _step(recording, width)
    yield from _findings(recording, findings)
    yield from _lines(recording, width)
    yield from _heading("Environment")
    yield _pairs([(name, Text(value)) for name, value in environment(recording)])
    yield from _heading("Limits")
    for sentence in limits(recording) or ["None that this report knows of."]:
        yield _pairs([("-", Text(sentence))])


def _heading(title: str, remark: str = "", *, empty: bool = False) -> Iterator[Text]:
    """A title with a line above it and, unless the section is `empty`, one below it."""
    yield Text()
    yield Text.assemble((title, _HEADING), (f"  {remark}" if remark else "", _QUIET))
    if not empty:
        yield Text()


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)


def _pairs(rows: Sequence[tuple[str, Text]]) -> Padding:
    """Names and texts in two columns, the texts wrapped in theirs."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=_QUIET, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    return _indented(grid)


def _step(recording: Recording, width: int) -> Iterator[RenderableType]:
    table = recording.step_table()
    if not table.first:
        yield from _heading("The training step")
        yield Text("  No complete step was recorded: a step ends with `optimizer.step()`.")
        return
    shares = table.mean or table.first
    mean = f"mean of {text.plural(table.averaged, 'step')}, without the first" if table.mean else "the only step"
    yield from _heading("The training step", mean)
    total, first = _total(shares), _total(table.first)
    rows = [(share.phase.label, share, total.time_ns) for share in sorted(shares, key=_by_place)]
    sums = [("whole step", total, 0.0)] + ([("first step", first, 0.0)] if table.mean else [])
    columns = _columns([*rows, *sums], width - 4)
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=_QUIET)
    for column in columns:
        grid.add_column(column.header, style=column.style, justify=column.justify, no_wrap=True)
    for number in range(len(rows) + len(sums)):
        if number == len(rows):
            grid.add_row()
        style = "" if number < len(rows) else "bold" if number == len(rows) else _QUIET
        grid.add_row(*(Text(column.cells[number]) for column in columns), style=style)
    yield _indented(grid)
    remarks = []
    if total.views:
        remarks.append(f"{text.count(total.views)} of the operators on mps only view other memory: no kernel runs.")
    changes = list(recording.backend_changes_per_step().values())
    if any(changes):
        remarks.append(f"Each fallback changes from the GPU to the CPU and back: {_spread(changes)} a step.")
    if remarks:
        yield Text()
        yield _indented(Text(" ".join(remarks)))


def _spread(changes: Sequence[int]) -> str:
    low, high = min(changes), max(changes)
    return f"{high} changes" if low == high else f"{low} to {high} changes"


def _by_place(share: PhaseShare) -> int:
    return _PHASES.index(share.phase)


@dataclass(frozen=True)
class _Column:
    header: str
    cells: list[str]
    style: str = ""
    justify: JustifyMethod = "right"

    @property
    def width(self) -> int:
        return max(map(len, (self.header, *self.cells))) + 2


def _columns(rows: Sequence[tuple[str, PhaseShare, float]], width: int) -> list[_Column]:
    """The step table's columns, the least important left out until they fit."""
    shares = [share for _, share, _ in rows]
    columns = [
        _Column("phase", [name for name, _, _ in rows], justify="left"),
        _Column("on mps", [text.count(share.on_mps) for share in shares]),
        _Column("on CPU", [text.count(share.on_cpu) for share in shares], "yellow"),
        _Column("waits", [text.count(share.waits) for share in shares], "yellow"),
        _Column("to mps", [text.size(share.bytes_to_mps) for share in shares]),
        _Column("to CPU", [text.size(share.bytes_to_cpu) for share in shares]),
        _Column("by fallback", [text.size(share.fallback_bytes) for share in shares], "yellow"),
        _Column("time", [text.duration(share.time_ns) for share in shares]),
        _Column("share", [text.percent(share.time_ns, whole) for _, share, whole in rows], _QUIET),
    ]
    if not any(columns[-3].cells):
        del columns[-3]
    for header in ("by fallback", "share", "to CPU", "to mps"):
        if sum(column.width for column in columns) > width:
            columns = [column for column in columns if column.header != header]
    return columns


def _total(shares: Sequence[PhaseShare]) -> PhaseShare:
    """All phases added up."""
    fields = ("on_mps", "views", "on_cpu", "waits", "bytes_to_mps", "bytes_to_cpu", "fallback_bytes", "time_ns")
    return PhaseShare(Phase.OTHER, *(sum(getattr(share, field) for share in shares) for field in fields))


def _findings(recording: Recording, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    yield from _heading("Findings", "" if findings else "none", empty=not findings)
    directory = fact(recording, "directory")
    for number, finding in enumerate(findings):
        if number:
            yield Text()
        style = _STYLES[finding.severity]
        yield Text.assemble((f"{finding.id} {finding.severity.label}", style), "  ", (finding.title, "bold"))
        rows = [("where", Text(_where(finding, directory)))]
        if finding.site.source:
            rows.append(("", _source(finding.site.source)))
        for site in finding.related_sites:
            rows.append(("made at", Text(text.place(site, directory))))
            if site.source:
                rows.append(("", _source(site.source)))
        rows.append(("what", Text(text.clean(finding.what))))
        rows.append(("times", Text(_times(finding))))
        if finding.cost_ns[1]:
            rows.append(("cost", Text(_cost(finding))))
        rows += [
            ("why", Text(finding.why)),
            ("fix", Text(text.clean(finding.fix), "green")),
            ("source", Text(finding.source, _QUIET)),
        ]
        yield _pairs(rows)


def _where(finding: Finding, directory: str) -> str:
    where = text.place(finding.site, directory)
    function = text.clean(finding.site.function)
    return f"{where} in {function}" if function and function != "<module>" else where


def _source(line: str) -> Text:
    return Text(f"| {text.clean(line.strip())}", "bold")


def _times(finding: Finding) -> str:
    if not finding.per_step:
        return f"{finding.count:,}"
    return f"{finding.count:,} in this run, {text.count(finding.per_step)} a step"


def _cost(finding: Finding) -> str:
    if finding.cost_per_step_ns[1]:
        return f"about {text.duration_range(*finding.cost_per_step_ns)} a step on a Mac"
    return f"about {text.duration_range(*finding.cost_ns)} in this run on a Mac"


def _lines(recording: Recording, width: int) -> Iterator[RenderableType]:
    lines = recording.lines()
    remark = "counts of the whole run" if lines else "nothing reached mps"
    yield from _heading("Your script, line by line", remark, empty=not lines)
    known = [line for line in lines if line.file]
    kept = set(sorted(known, key=_interest, reverse=True)[:_MOST_LINES])
    kept_lines = [line for line in known if line in kept]
    directory = fact(recording, "directory")
    columns = [column for column in _line_columns(kept_lines) if column.header in _ALWAYS or any(column.cells)]
    if width < _ROOMY:
        columns = [column for column in columns if column.header != "changes"]
    blocks: list[Group] = []
    for file, group in groupby(range(len(kept_lines)), key=lambda row: kept_lines[row].file):
        title = Text(text.path(file, directory), "bold")
        blocks.append(Group(title, _line_table(columns, kept_lines, list(group), width)))
    left = [line for line in known if line not in kept]
    if left:
        blocks.append(Group(Text(f"{text.plural(len(left), 'more line')}: {_sum_words(left)}.")))
    unknown = [line for line in lines if not line.file]
    if unknown:
        blocks.append(Group(Text(f"Without a line of yours: {_sum_words(unknown)}.")))
    for number, block in enumerate(blocks):
        if number:
            yield Text()
        yield _indented(block)


def _line_table(columns: Sequence[_Column], lines: Sequence[Line], rows: Sequence[int], width: int) -> Table:
    """Some rows of the line table; all files have columns of one width."""
    room = max(width - sum(column.width for column in columns) - 4, 8)
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=_QUIET)
    for column in columns:
        grid.add_column(column.header, style=column.style, justify="right", no_wrap=True, min_width=column.width - 2)
    grid.add_column("source", no_wrap=True)
    for row in rows:
        source = text.shorten(text.clean(lines[row].source.strip()), room)
        grid.add_row(*(Text(column.cells[row]) for column in columns), Text(source))
    return grid


def _interest(line: Line) -> tuple[int, ...]:
    return (line.refused, line.on_cpu, line.waits, line.on_mps)


def _line_columns(lines: Sequence[Line]) -> list[_Column]:
    return [
        _Column("line", [str(line.line) for line in lines], _QUIET),
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
