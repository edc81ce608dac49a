"""The content of a report in every form: a verdict, and sections of sentences, tables, drawings, facts and findings.

A builder makes one `Document` of a run, a plan or a comparison; a renderer walks it. All text is plain: words between
backquotes are code, and each renderer escapes for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import Any, Final, Literal, get_args

from anymps._text import severity_word
from anymps.report._text import shorten

State = Literal["error", "warning", "info", "clean"]
WORDS: Final[dict[State, str]] = {state: severity_word(state) for state in get_args(State)}
"""What each is called in what people read."""
HEAT: Final[dict[str, State]] = {
    "OK": "clean", "unknown": "info", "slower": "warning", "falls": "warning", "may": "warning", "wrong": "error",
    "refused": "error", "no": "error",
}  # fmt: skip
"""The state that colours a verdict in a table of releases, by its first word."""
Look = Literal["", "quiet", "fix"]


class Form(Flag):
    """The forms that people read; a section or block names those that show it."""

    TERMINAL = auto()
    PAGE = auto()
    MARKDOWN = auto()
    TEXT = TERMINAL | MARKDOWN
    ALL = TERMINAL | PAGE | MARKDOWN


@dataclass(frozen=True)
class Prose:
    """Sentences of one kind, after words that lead to them; `joined` ones are one paragraph in a terminal."""

    sentences: tuple[str, ...]
    lead: str = ""
    look: Look = ""
    joined: bool = False
    forms: Form = Form.ALL


@dataclass(frozen=True)
class Measured:
    """A cell that sorts by its value."""

    text: str
    value: float

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Cut:
    """A cell of source that is cut to the room there is, down to `least` characters, and never its `tail`."""

    text: str
    tail: str = ""
    least: int = 24

    def within(self, room: int) -> str:
        """At most `room` characters, as far as `least` allows."""
        return shorten(self.text, max(room - len(self.tail), self.least)) + self.tail

    def __str__(self) -> str:
        return self.within(160)


Cell = str | Measured | Cut


@dataclass(frozen=True)
class Column:
    """A column: what its cells are, and what becomes of it in a terminal that is too narrow.

    A `path` loses folders, cells that `wraps` break between words, and columns are `left_out` from 1 on; a phone shows
    none of 1 to 4. `width` is the least that it takes, `style` its colour.
    """

    name: str
    kind: Literal["text", "number", "path", "remark", "verdict"] = "text"
    wraps: bool = False
    left_out: int = 0
    width: int = 0
    style: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells, then `sums`, or rows `beyond` them; `head` is the column that names a row.

    The words: `caption` on a page, `title` in text, `intro` before and `rest` after the table. A table that is not
    `headed` shows no names of columns in a terminal, which takes the `narrower` one where this one does not fit. A page
    lets its reader sort by the columns of one that is `sorted_by` one of them, and folds one with a `fold`.
    """

    anchor: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    title: str = ""
    intro: str = ""
    rest: str = ""
    sums: tuple[tuple[Cell, ...], ...] = ()
    beyond: tuple[tuple[Cell, ...], ...] = ()
    head: int | None = 0
    headed: bool = True
    sorted_by: str = ""
    fold: str = ""
    narrower: Table | None = None
    forms: Form = Form.ALL

    @property
    def names(self) -> tuple[str, ...]:
        """Those of its columns."""
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """Characters of its longest cells, two apart."""
        return sum(max(len(str(cell)) for cell in cells) + 2 for cells in zip(self.names, *self.rows, strict=True)) - 2

    def of_columns(self, places: Sequence[int]) -> Table:
        """The table with no other columns than those at `places`."""

        def cut(rows: tuple[tuple[Cell, ...], ...]) -> tuple[tuple[Cell, ...], ...]:
            return tuple(tuple(row[place] for place in places) for row in rows)

        columns = tuple(self.columns[place] for place in places)
        return replace(self, columns=columns, rows=cut(self.rows), sums=cut(self.sums), beyond=cut(self.beyond))


@dataclass(frozen=True)
class Facts:
    """Names and values, side by side; a value of several texts is a list of code."""

    rows: tuple[tuple[str, str | tuple[str, ...]], ...]
    forms: Form = Form.ALL


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    sentences: tuple[str, ...]
    forms: Form = Form.ALL


@dataclass(frozen=True)
class Change:
    """Something to change: what to do, and what is known of it here."""

    prose: tuple[Prose, ...]
    badge: str = ""


@dataclass(frozen=True)
class Changes:
    """What to change, in this order."""

    changes: tuple[Change, ...]
    forms: Form = Form.ALL


@dataclass(frozen=True)
class SourceLine:
    """One line of an excerpt; `marked` is the one it is about. Number 0 is none."""

    number: int
    text: str
    marked: bool


@dataclass(frozen=True)
class Spot:
    """A place in the program: its name, the function, the line itself and those around it."""

    where: str
    function: str = ""
    line: str = ""
    excerpt: tuple[SourceLine, ...] = ()


@dataclass(frozen=True)
class Note:
    """A finding, with the `facts` that are known of it. `brief` is all that a terminal says of one that is short."""

    anchor: str
    id: str
    severity: State
    title: str
    spot: Spot
    facts: tuple[tuple[str, str], ...]
    related_as: str = ""
    related: tuple[Spot, ...] = ()
    brief: str = ""
    forms: Form = Form.ALL


@dataclass(frozen=True)
class Drawing:
    """A picture on a page: its `kind`, the name of the macro that draws it, and its numbers."""

    kind: str
    data: Mapping[str, Any]
    forms: Form = Form.PAGE


Block = Prose | Table | Facts | Items | Changes | Note | Drawing


@dataclass(frozen=True)
class Section:
    """Blocks under a title; a terminal and Markdown may call it by a shorter `heading`, with a `remark`.

    `nav` is its name in the page's list of sections. Pages and Markdown show a `folded` one after a click, below
    those that they show at once. Only the forms of `headed` show a heading.
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]
    nav: str = ""
    heading: str = ""
    remark: str = ""
    folded: bool = True
    headed: Form = Form.ALL
    forms: Form = Form.ALL

    def called(self, form: Form) -> str:
        """Its heading in text; nothing where it has none."""
        return (self.heading or self.title) if form in self.headed else ""


@dataclass(frozen=True)
class Document:
    """A report: its verdict and what else is said at once, numbers that matter most, and sections.

    `kind` is what it is called, `made_from` what it was made of, `eyebrow` what it is about. A `dense` one has no empty
    line below its headings.
    """

    title: str
    kind: str
    made_from: str
    eyebrow: tuple[str, ...]
    state: State
    verdict: str
    sections: tuple[Section, ...]
    messages: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()
    dense: bool = False

    def shown(self, form: Form) -> Iterator[tuple[Section, tuple[Block, ...]]]:
        """The sections of a form, each with its blocks that are shown there; an empty one where a remark says why."""
        for section in self.sections:
            if form in section.forms:
                blocks = tuple(block for block in section.blocks if form in block.forms)
                if blocks or (section.remark and form is Form.TERMINAL):
                    yield section, blocks
