"""Tables for a terminal in which no word and no number is cut: columns leave room for each other, or are left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from anymps.report._console import QUIET
from anymps.report._text import without_folders

_PLACE: Final = "where"
_BETWEEN: Final = 2  # blanks
_NARROWEST: Final = 8  # of a place whose name is longer than the room that is left


def fitted_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    room: int,
    *,
    numbers: Collection[str] = (),
    wrapped: Collection[str] = (),
    left_out: Sequence[str] = (),
    quiet: Sequence[Sequence[str]] = (),
    titled: bool = True,
) -> Table:
    """The rows as a table at most `room` wide; then those that are `quiet`. All are so in a table that is not `titled`.

    Cells of the `wrapped` columns break between words, other cells stay on one line. Where that does not fit, columns
    of `left_out` go in that order, then the column `where` loses folders, and only a file's name that is longer than
    what is left is cut into lines.
    """
    cells = {name: [str(row[at]) for row in (*rows, *quiet)] for at, name in enumerate(headers)}
    least = {name: _least(name if titled else "", column, name, wrapped) for name, column in cells.items()}
    for name in left_out:
        if _sum(least) > room and name in cells:
            del cells[name], least[name]
    widths = {name: max(map(len, (name if titled else "", *column))) for name, column in cells.items()}
    if _PLACE in cells:
        free = max(room - _sum(least) + least[_PLACE], _NARROWEST)
        cells[_PLACE] = [without_folders(cell, free) for cell in cells[_PLACE]]
        widths[_PLACE] = min(max(map(len, (_PLACE if titled else "", *cells[_PLACE]))), free)
    while _sum(widths) > room:
        shrinking = [name for name in widths if name in wrapped and widths[name] > least[name]]
        if not shrinking:
            break
        widths[max(shrinking, key=widths.__getitem__)] -= 1
    table = Table(
        box=None, padding=(0, _BETWEEN, 0, 0), pad_edge=False, header_style=QUIET, show_header=titled, show_edge=False
    )
    for name, width in widths.items():
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            style="" if titled else QUIET,
            width=width,
            no_wrap=name not in wrapped and name != _PLACE,
            overflow="fold",
        )
    for number in range(len(rows) + len(quiet)):
        texts = [Text(column[number]) for column in cells.values()]
        table.add_row(*texts, style=QUIET if number >= len(rows) else "")
    return table


def _least(header: str, column: Sequence[str], name: str, wrapped: Collection[str]) -> int:
    """The narrowest that a column may be."""
    if name == _PLACE:
        return max(len(header), *(len(without_folders(cell, 0)) for cell in column))
    cells = (header, *column)
    return max(len(word) for cell in cells for word in (cell.split() or [""] if name in wrapped else [cell]))


def _sum(widths: dict[str, int]) -> int:
    return sum(widths.values()) + _BETWEEN * (len(widths) - 1)
