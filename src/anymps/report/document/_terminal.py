"""A document for a terminal or a pipe.

Everything that comes from a program is a `Text`, never markup, so nothing in it can change how the report looks.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from anymps.report.document._columns import fitted_table
from anymps.report.document._console import (
    DEFAULT_WIDTH,
    QUIET,
    STATE_STYLES,
    fitting,
    heading,
    indented,
    pairs,
    printed,
)
from anymps.report.document._tree import (
    WORDS,
    Block,
    Changes,
    Document,
    Facts,
    Form,
    Items,
    Note,
    Prose,
    Spot,
    Table,
)

_LOOKS = {"": "", "quiet": QUIET, "fix": "green"}


def as_text(document: Document, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """The document as text of 60 to 120 columns; without colour there are no control sequences."""
    width = fitting(width)
    return printed(_parts(document, width), width, color=color)


def _parts(document: Document, width: int) -> Iterator[RenderableType]:
    yield Text(document.verdict, STATE_STYLES[document.state])
    for sentence in (*document.messages, *document.sentences):
        yield Text(sentence)
    for section, blocks in document.shown(Form.TERMINAL):
        if called := section.called(Form.TERMINAL):
            yield from heading(called, section.remark, empty=document.dense or not blocks)
        elif section is not document.sections[0]:
            yield Text()
        for number, block in enumerate(blocks):
            if number and not (isinstance(block, Note) and block.brief):
                yield Text()
            parts = _block(block, width)
            flush = isinstance(block, Prose) and not called  # sentences without a heading stand at the margin
            yield from (part.renderable for part in parts if isinstance(part, Padding)) if flush else parts


def _block(block: Block, width: int) -> Iterator[RenderableType]:
    if isinstance(block, Prose):
        yield from _prose(block)
    elif isinstance(block, Table):
        yield from _table(block, width)
    elif isinstance(block, Facts):
        rows = ((name, value if isinstance(value, str) else ", ".join(value)) for name, value in block.rows)
        yield pairs([(name, Text(value)) for name, value in rows])
    elif isinstance(block, Items):
        for sentence in block.sentences:
            yield pairs([("-", Text(sentence))])
    elif isinstance(block, Changes):
        yield _changes(block)
    elif isinstance(block, Note):
        yield from _note(block)


def _prose(prose: Prose) -> Iterator[RenderableType]:
    style = _LOOKS[prose.look]
    sentences = (" ".join(prose.sentences),) if prose.joined else prose.sentences
    for number, sentence in enumerate(sentences):
        lead = f"{prose.lead} " if prose.lead and not number else ""
        yield indented(Text.assemble((lead, "bold"), (sentence, style)))


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    while table.narrower is not None and table.width > width - 4:
        table = table.narrower
    if table.title:
        yield indented(Text(table.title, "bold"))
    if table.intro:
        yield indented(Text(table.intro))
    if table.rows:
        yield indented(fitted_table(table, width - 4))
    if table.rest:
        yield indented(Text(table.rest, QUIET))


def _changes(changes: Changes) -> RenderableType:
    grid = RichTable.grid(padding=(0, 1, 0, 0))
    for number, change in enumerate(changes.changes, 1):
        badge = f"{change.badge[0].upper()}{change.badge[1:]}. " if change.badge else ""
        for place, prose in enumerate(change.prose):
            said = Text(" ".join(prose.sentences), _LOOKS[prose.look])
            grid.add_row("" if place else f"{number}.", said if place else Text.assemble((badge, "bold"), said))
    return indented(grid)


def _note(note: Note) -> Iterator[RenderableType]:
    label = (f"{note.id} {WORDS[note.severity]}", STATE_STYLES[note.severity])
    if note.brief:
        yield indented(Text.assemble(label, f"  {note.spot.where}  ", (note.title, "bold")))
        yield pairs([("  ", Text(note.brief))])
        return
    yield Text.assemble(label, "  ", (note.title, "bold"))
    rows = _spot("where", note.spot)
    for spot in note.related:
        rows += _spot(note.related_as, spot)
    styles = {"fix": "green", "source": QUIET}
    yield pairs([*rows, *((name, Text(said, styles.get(name, ""))) for name, said in note.facts)])


def _spot(name: str, spot: Spot) -> list[tuple[str, Text]]:
    where = f"{spot.where} in {spot.function}" if spot.function else spot.where
    return [(name, Text(where)), *([("", Text(f"| {spot.line}", "bold"))] if spot.line else [])]
