"""What every text for a terminal is made of: the console, headings, indented blocks, columns of names and texts."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anymps.findings import Severity

DEFAULT_WIDTH: Final = 100
NARROWEST, WIDEST = 60, 120  # below, tables fall apart; above, sentences are hard to read

HEADING: Final = "bold cyan"
QUIET: Final = "dim"
STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}


def fitting(width: int) -> int:
    """The width that texts are made for."""
    return max(NARROWEST, min(width, WIDEST))


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
