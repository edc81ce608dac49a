"""The script line by line: a table for each file, with the lines that did most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from anymps.findings import Story
from anymps.record import Line
from anymps.report import _text as text
from anymps.report._words import source_cell
from anymps.report.document import Block, Cell, Column, Form, Measured, Prose, Section, Table

_MOST_ON_PAGE: Final = 300  # lines; the rest is summed up
_MOST_IN_TERMINAL: Final = 60
_MOST_UNKNOWN: Final = 8

_COUNTS: Final = {
    "on mps": ("on_mps", ""),
    "on CPU": ("on_cpu", "yellow"),
    "switches": ("backend_changes", "yellow"),
    "waits": ("waits", "yellow"),
    "refused": ("refused", "bold red"),
}
_SUMMED: Final = ("on mps", "on CPU", "waits", "refused")
_RARE: Final = ("switches", "refused")
"""Counts whose columns are left out of a terminal where they are empty."""


def lines_section(story: Story) -> Section:
    """What each line did in the whole run."""
    lines = story.lines
    directory = story.run.directory
    return Section(
        "lines",
        f"Your {'script' if story.run.suite is None else 'code'}, line by line",
        (*_on_page(lines, directory), *_in_terminal(lines, directory)),
        nav="Lines",
        remark="counts of the whole run" if lines else "nothing reached mps",
        forms=Form.PAGE | Form.TERMINAL,
    )


def gpu_section(story: Story) -> Iterator[Section]:
    """What the GPU of a Mac spent on each line, by torch's own profiler."""
    profile = story.gpu_profile
    if profile is None:
        return
    rows = tuple(
        (
            text.place(line.site, story.run.directory) if line.site.known else "no line of yours",
            Measured(text.duration(line.gpu_ns), line.gpu_ns),
            text.percent(line.gpu_ns, profile.gpu_ns),
            ", ".join(map(text.clean, line.operators)),
        )
        for line in profile.lines[:_MOST_IN_TERMINAL]
    )
    sentences = [
        f"The GPU computed for {text.duration(profile.gpu_ns)}. Calls of the same operator and sizes share it."
    ]
    if unknown := profile.unknown:
        names = ", ".join(text.clean(operation.name.partition(":")[0]) for operation in unknown[:_MOST_UNKNOWN])
        time = text.duration(sum(operation.gpu_ns for operation in unknown))
        sentences.append(f"{time} of it belong to no recorded call: {names}.")
    columns = (Column("line", "path"), Column("GPU time", "number"), Column("share", "number"), Column("operators"))
    yield Section(
        "gpu",
        "GPU time by line, measured by torch on the Mac",
        (Prose((" ".join(sentences),)), Table("gpu-table", columns, rows)),
        "GPU time",
    )


def _on_page(lines: Sequence[Line], directory: str) -> Iterator[Block]:
    kept = sorted(_kept(lines, _MOST_ON_PAGE), key=lambda line: (line.file, line.line))
    for number, (file, group) in enumerate(groupby(kept, key=lambda line: line.file), 1):
        of_file = list(group)
        # An empty column pushes the source off a phone.
        counts = [name for name in _SUMMED if any(_count(line, name) for line in of_file)]
        columns = (Column("line", "number"), *(Column(name, "number") for name in counts), Column("source", "path"))
        rows = tuple(_row(line, counts, directory) for line in of_file)
        yield Table(f"file-{number}", columns, rows, caption=text.module(file, directory), forms=Form.PAGE)
    sentences = []
    if left := sum(bool(line.file) for line in lines) - len(kept):
        sentences.append(f"{text.plural(left, 'more line')}, each with fewer calls.")
    if unknown := sum(line.on_mps + line.on_cpu for line in lines if not line.file):
        sentences.append(f"{text.plural(unknown, 'call')} without a line of yours.")
    if sentences:
        yield Prose((" ".join(sentences),), look="quiet", forms=Form.PAGE)


def _in_terminal(lines: Sequence[Line], directory: str) -> Iterator[Block]:
    """All files have columns of one width."""
    chosen = set(_kept(lines, _MOST_IN_TERMINAL))
    known = [line for line in lines if line.file]
    kept = [line for line in known if line in chosen]
    counts = [name for name in _COUNTS if name not in _RARE or any(_count(line, name) for line in kept)]
    columns = [Column("line", "number", width=max((len(str(line.line)) for line in kept), default=0), style="dim")]
    for name in counts:
        width = max((len(text.count(_count(line, name))) for line in kept), default=0)
        columns.append(
            Column(name, "number", width=width, style=_COUNTS[name][1], left_out=1 if name == "switches" else 0)
        )
    for file, group in groupby(kept, key=lambda line: line.file):
        rows = tuple(_row(line, counts, directory) for line in group)
        title = text.module(file, directory)
        yield Table("", (*columns, Column("source")), rows, title=title, forms=Form.TERMINAL)
    if left := [line for line in known if line not in chosen]:
        yield Prose((f"{text.plural(len(left), 'more line')}: {_sum_words(left)}.",), forms=Form.TERMINAL)
    if unknown := [line for line in lines if not line.file]:
        yield Prose((f"Not from your lines: {_sum_words(unknown)}.",), forms=Form.TERMINAL)


def _kept(lines: Sequence[Line], most: int) -> list[Line]:
    """Those that tell most."""
    known = [line for line in lines if line.file]
    return sorted(known, key=lambda line: (line.refused, line.on_cpu, line.waits, line.on_mps), reverse=True)[:most]


def _count(line: Line, name: str) -> int:
    return int(getattr(line, _COUNTS[name][0]))


def _row(line: Line, counts: Sequence[str], directory: str) -> tuple[Cell, ...]:
    return (str(line.line), *(text.count(_count(line, name)) for name in counts), source_cell(line, directory))


def _sum_words(lines: Sequence[Line]) -> str:
    counts = {name: sum(_count(line, name) for line in lines) for name in _SUMMED}
    return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number) or "nothing"
