"""A document as Markdown, for a job's summary (`$GITHUB_STEP_SUMMARY`), a pull request or a notebook.

The dialect is GitHub's (github.github.com/gfm): tables, and `<details>` around what is read second. What comes from
a program is escaped, so that it makes no link, no HTML and no mention of anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from anymps.report._text import clean, plural
from anymps.report.document._tree import (
    WORDS,
    Block,
    Cell,
    Change,
    Changes,
    Document,
    Facts,
    Form,
    Items,
    Note,
    Prose,
    Section,
    Spot,
    Table,
)

_MOST_NOTES = 20  # in full; a job's summary may have 1 MiB, and nobody reads more
_MARKS = {"error": "\u274c", "warning": "\u26a0\ufe0f", "info": "\u2139\ufe0f", "clean": "\u2705"}
# Not the module `html`, which a script may have one of its own of: a report is imported before the script runs.
_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~!$])")


def as_markdown(document: Document) -> Iterator[str]:
    """The document: its verdict, what is read first, then the rest, folded."""
    yield f"### {escaped(document.verdict)}\n"
    for message in document.messages:
        yield f"\n{_fenced(message, 'text')}"
    for sentence in document.sentences:
        yield f"\n{escaped(sentence)}\n"
    shown = list(document.shown(Form.MARKDOWN))
    for section, blocks in sorted(shown, key=lambda pair: pair[0].folded):
        if section.folded:
            called = section.called(Form.MARKDOWN)
            title = f"{called}: {section.remark}" if section.remark else called
            yield from _folded(title, [_block(block) for block in blocks])
        else:
            yield from _section(section, blocks)


def escaped(sentence: str) -> str:
    """One line of prose; what stands in backticks is code, anything else makes no Markdown, HTML or mention.

    A bar in code would end the cell of a table: it is escaped there.
    """
    parts = clean(sentence).replace("\n", " ").split("`")
    if len(parts) % 2 == 0:  # a backtick without its other one is none
        parts = ["`".join(parts)]
    return "".join(f"`{part}`" if number % 2 and part.strip() else _plain(part) for number, part in enumerate(parts))


def _plain(part: str) -> str:
    return _SPECIAL.sub(r"\\\1", part).translate(_HTML)


def _cell(part: Cell) -> str:
    """A cell of a table, in which a bar in code needs its backslash, too."""
    return re.sub(r"(?<!\\)\|", r"\\|", escaped(str(part)))


def _fenced(lines: str, language: str) -> str:
    """Lines as a block of code, within a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", lines)), default=0))
    return f"{fence}{language}\n{lines}\n{fence}\n"


def _folded(heading: str, blocks: Sequence[str]) -> Iterator[str]:
    """What is read second: GitHub shows the heading, and the rest after a click."""
    title = heading.replace("`", "").translate(_HTML)  # Markdown means nothing amid HTML
    yield f"\n<details><summary>{title}</summary>\n"
    for block in blocks:
        yield f"\n{block}"
    yield "\n</details>\n"


def _section(section: Section, blocks: Sequence[Block]) -> Iterator[str]:
    """Blocks under their heading; of many findings the first in full, the others as a table."""
    if called := section.called(Form.MARKDOWN):
        remark = f" ({escaped(section.remark)})" if section.remark else ""
        yield f"\n#### {escaped(called)}{remark}\n"
    notes = [block for block in blocks if isinstance(block, Note)]
    left = notes[_MOST_NOTES:]
    for block in blocks:
        if block not in left:
            deeper = "#" if called and isinstance(block, Note) else ""
            yield f"\n{deeper}{_block(block)}"
    if left:
        rows = [(note.id, WORDS[note.severity], note.spot.where, note.title) for note in left]
        yield from _folded(plural(len(left), "more finding"), [_rows(("rule", "severity", "where", "what"), rows)])


def _block(block: Block) -> str:
    if isinstance(block, Prose):
        return _prose(block)
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Facts):
        rows = [
            (name, value if isinstance(value, str) else ", ".join(f"`{code}`" for code in value))
            for name, value in block.rows
        ]
        return _rows(("", ""), rows)
    if isinstance(block, Items):
        return "".join(f"- {escaped(sentence)}\n" for sentence in block.sentences)
    if isinstance(block, Changes):
        return "".join(f"{number}. {_change(change)}\n" for number, change in enumerate(block.changes, 1))
    return "\n".join(_note(block)) if isinstance(block, Note) else ""


def _prose(prose: Prose) -> str:
    lead = f"**{escaped(prose.lead)}** " if prose.lead else ""
    return f"{lead}{escaped(' '.join(prose.sentences))}\n"


def _table(table: Table) -> str:
    """The table without the columns that are empty, amid its words."""
    rows = [*table.rows, *table.beyond, *table.sums]
    kept = [at for at in range(len(table.columns)) if any(str(row[at]) for row in rows)]
    columns = [table.columns[at] for at in kept]
    numbers = [number for number, column in enumerate(columns) if column.kind == "number"]
    shown = _rows([column.name for column in columns], [[row[at] for at in kept] for row in rows], numbers)
    words = [
        f"**{escaped(table.title)}**\n" if table.title else "",
        f"{escaped(table.intro)}\n" if table.intro else "",
        shown if rows else "",
        f"{escaped(table.rest)}\n" if table.rest else "",
    ]
    return "\n".join(filter(None, words))


def _rows(head: Sequence[str], rows: Sequence[Sequence[Cell]], numbers: Sequence[int] = ()) -> str:
    ruler = ["---:" if place in numbers else "---" for place in range(len(head))]
    lines = [[_cell(name) for name in head], ruler, *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _change(change: Change) -> str:
    badge = f"**{change.badge[0].upper()}{change.badge[1:]}.** " if change.badge else ""
    return badge + " ".join(escaped(sentence) for prose in change.prose for sentence in prose.sentences)


def _note(note: Note) -> Iterator[str]:
    yield f"#### {_MARKS[note.severity]} {escaped(note.spot.where)}: {escaped(note.title)}\n"
    if note.spot.line:
        yield _fenced(note.spot.line, "python")
    facts = {name: escaped(said) for name, said in note.facts}
    yield f"{facts['what']}\n"
    if "fix" in facts:
        yield f"**Fix:** {facts['fix']}\n"
    seen = f" in {facts['seen in']}" if "seen in" in facts else ""
    price = f", {facts['cost']}" if "cost" in facts else ""
    yield f"*{note.id} {WORDS[note.severity]}, {facts['times']}{seen}{price}.*\n"
    for spot in note.related:
        yield from _related(note.related_as, spot)


def _related(name: str, spot: Spot) -> Iterator[str]:
    yield f"{escaped(name)}: {escaped(spot.where)}\n"
    if spot.line:
        yield _fenced(spot.line, "python")
