"""What texts for a terminal are made of: the console, widths and colours, headings, names beside their texts."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anymps.report.document._tree import HEAT

DEFAULT_WIDTH: Final = 100
NARROWEST, WIDEST = 60, 120  # below, tables fall apart; above, sentences are hard to read

HEADING: Final = "bold cyan"
QUIET: Final = "dim"
STATE_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "info": "bold blue", "clean": "bold green"}
VERDICTS: Final = {
    "fits": "bold green", "tight": "yellow", "pages": "bold yellow", "fails": "bold red",
    **{word: STATE_STYLES[state] for word, state in HEAT.items()},
}  # fmt: skip
"""Of a Mac in a plan, and of a release; by the first word of a cell."""


def fitting(width: int) -> int:
    """The width that texts are made for."""
    return max(NARROWEST, min(width, WIDEST))


def look_of(target: TextIO) -> tuple[int, bool]:
    """How wide and whether in colour a text for `target` is.

    `NO_COLOR` (no-color.org) and `TERM=dumb` switch colour off.
    """
    if not target.isatty():
        return DEFAULT_WIDTH, False
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns, color


def written_to(target: TextIO, report: str) -> None:
    """Write a text, with a mark in the place of each character that `target` cannot encode."""
    encoding = getattr(target, "encoding", None) or "utf-8"
    target.write(report.encode(encoding, "replace").decode(encoding))


def printed(parts: Iterable[RenderableType], width: int, *, color: bool) -> str:
    """The parts as text of `width` columns, with colour or without any control sequences."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_jupyter=False,  # in a notebook it would show each line by itself and return nothing
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        legacy_windows=False,
    )
    for part in parts:
        if isinstance(part, Text) and part.no_wrap:  # the console forgets what a text says of that
            console.print(part, no_wrap=True, overflow=part.overflow, crop=False)
        else:
            console.print(part)
    if color:
        return stream.getvalue()
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def heading(title: str, remark: str = "", *, empty: bool = False) -> Iterator[Text]:
    """A title with a line above it and, unless the section is `empty`, one below it."""
    yield Text()
    yield Text.assemble((title, HEADING), (f"  {remark}" if remark else "", QUIET))
    if not empty:
        yield Text()


def indented(part: RenderableType) -> Padding:
    """The part, two columns to the right."""
    return Padding(part, (0, 0, 0, 2), expand=False)


def pairs(rows: Sequence[tuple[str, Text]]) -> Padding:
    """Names and texts in two columns, the texts wrapped in theirs."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=QUIET, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    return indented(grid)
