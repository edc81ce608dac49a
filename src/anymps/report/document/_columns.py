"""Tables for a terminal in which no word and no number is cut: columns leave room for each other, or are left out."""

from __future__ import annotations

from typing import Final

from rich.table import Table as RichTable
from rich.text import Text

from anymps.report._text import without_folders
from anymps.report.document._console import QUIET, VERDICTS
from anymps.report.document._tree import Cell, Column, Cut, Table

_BETWEEN: Final = 2  # blanks
_NARROWEST: Final = 8  # of a cell that may be cut where no room is left


def fitted_table(table: Table, room: int) -> RichTable:
    """The table at most `room` wide: its rows, those `beyond` them, and an empty row before its sums.

    Cells that wrap break between words, other cells stay on one line. Where that does not fit, columns are left out in
    their order, then paths lose folders, and only a file's name that is longer than what is left is cut into lines.
    """
    rows = [*table.rows, *table.beyond, *table.sums]
    columns = [_Fitting(column, [row[at] for row in rows], table.headed) for at, column in enumerate(table.columns)]
    _fit_all(columns, room)
    grid = RichTable(
        box=None,
        padding=(0, _BETWEEN, 0, 0),
        pad_edge=False,
        header_style=QUIET,
        show_header=table.headed,
        show_edge=False,
    )
    for column in columns:
        grid.add_column(
            column.column.name,
            justify="right" if column.column.kind == "number" else "left",
            style=column.column.style if table.headed else QUIET,
            width=column.width,
            no_wrap=not column.column.wraps and column.column.kind != "path",
            overflow="fold",
        )
    first_sum = len(rows) - len(table.sums)
    for number in range(len(rows)):
        if number == first_sum:
            grid.add_row()
        style = "" if number < len(table.rows) else "bold" if number == first_sum else QUIET
        grid.add_row(*(column.styled(number) for column in columns), style=style)
    return grid


def _fit_all(columns: list[_Fitting], room: int) -> None:
    """Leaves columns out of the list, and makes the others narrower, until they have room."""
    can_go = [column for column in columns if column.column.left_out]
    for column in sorted(can_go, key=lambda column: column.column.left_out):
        if _sum([other.least for other in columns]) > room:
            columns.remove(column)
    for column in columns:
        others = _sum([other.least for other in columns if other is not column])
        column.fit(room - others - (_BETWEEN if columns[1:] else 0))
    # From the widest, a character at a time: those that must give end about equally wide.
    while _sum([column.width for column in columns]) > room:
        shrinking = [column for column in columns if column.column.wraps and column.width > column.least]
        if not shrinking:
            break
        max(shrinking, key=lambda column: column.width).width -= 1


class _Fitting:
    """A column with its cells as text, and how wide it must and will be."""

    def __init__(self, column: Column, cells: list[Cell], headed: bool) -> None:
        self.column, self._cells = column, cells
        self._header = column.name if headed else ""
        self.texts = [str(cell) for cell in cells]
        self.least = self._least()
        self.width = max(map(len, (self._header, *self.texts)), default=0)
        self.width = max(self.width, column.width)

    def fit(self, room: int) -> None:
        """Shorten what may be shorter."""
        room = max(room, _NARROWEST)
        if self.column.kind == "path":
            self.texts = [without_folders(text, room) for text in self.texts]
        elif any(isinstance(cell, Cut) for cell in self._cells):
            self.texts = [cell.within(room) if isinstance(cell, Cut) else str(cell) for cell in self._cells]
        else:
            return
        self.width = min(max(map(len, (self._header, *self.texts))), room)

    def styled(self, number: int) -> Text:
        """A cell; a verdict in its colour."""
        text = self.texts[number]
        return Text(text, VERDICTS.get(text.split(" ")[0], "") if self.column.kind == "verdict" else "")

    def _least(self) -> int:
        """The narrowest that the column may be."""
        header, column = self._header, self.column
        if column.kind == "path":
            return max(len(header), *(len(without_folders(text, 0)) for text in self.texts))
        if any(isinstance(cell, Cut) for cell in self._cells):
            return max(len(header), _NARROWEST)
        cells = (header, *self.texts)
        words = max(len(word) for cell in cells for word in (cell.split() or [""] if column.wraps else [cell]))
        return max(words, column.width)


def _sum(widths: list[int]) -> int:
    return sum(widths) + _BETWEEN * (len(widths) - 1)
