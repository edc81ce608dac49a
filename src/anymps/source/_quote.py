"""The user's source in a recording: a line, the lines around it, and its statement's comments for anymps.

It is read once, while the program runs. A report quotes the recording and opens no file: a recording may come from
another machine, whose files are different here.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Final, NamedTuple

from anymps.source._files import opened, parsed, rows, text_of
from anymps.source._statements import rows_at

AROUND: Final = 3
"""Lines kept before and after the one that is recorded, and more where its statement goes on."""

_STATEMENT: Final = 10  # lines before and after it in which its statement is looked for
_LONGEST: Final = 10_000  # characters of a line that are kept


class Quote(NamedTuple):
    """A line without its margin, and the lines around it as they stand, the first of which has the number `first`.

    `comments` are the other lines of its statement that hold a comment for anymps.
    """

    source: str = ""
    first: int = 0
    around: str = ""
    comments: str = ""


def quote_file(file: str, line: int) -> Quote:
    """The line of a file or of a notebook's cell; an empty quote where it cannot be read."""
    return quote_text(text_of(file), line)


def quote_text(text: str, line: int) -> Quote:
    """The line of a text."""
    lines = rows(text)
    if not 0 < line <= len(lines):
        return Quote()
    first, last = _rows(lines, line)
    around = "\n".join(each[:_LONGEST] for each in lines[first - 1 : last])
    return Quote(lines[line - 1].strip()[:_LONGEST], first, around, "\n".join(_comments(text, line)))


def _rows(lines: tuple[str, ...], line: int) -> tuple[int, int]:
    """First and last of the lines around one, with those between the parentheses that it stands in, or opens.

    Parentheses are counted and no file is parsed: this runs while the program is timed. Where one in a text or a
    comment misleads, a few more lines are kept, or the statement is not whole.
    """
    first, last = max(line - AROUND, 1), min(line + AROUND, len(lines))
    depth = outermost = 0
    for row in range(line - 1, max(line - _STATEMENT, 1) - 1, -1):
        depth += opened(lines[row - 1])
        if depth > outermost:
            first, outermost = min(first, row), depth
    for row in range(line, min(line + _STATEMENT, len(lines)) + 1):
        outermost += opened(lines[row - 1])
        if outermost <= 0:
            return first, max(last, row)
    return first, last


def _comments(text: str, line: int) -> list[str]:
    """The other lines of the innermost statement at a line that speak to anymps; of a compound one, of its head."""
    tree = _tree_with_comments(text)
    if tree is None:
        return []
    first, last = rows_at(tree, line)
    others = (each for row, each in enumerate(rows(text)[first - 1 : last], first) if row != line)
    return [each[:_LONGEST] for each in others if "anymps:" in each]


@lru_cache(maxsize=16)
def _tree_with_comments(text: str) -> ast.Module | None:
    """The tree of a text that speaks to anymps: no other is parsed while the program is timed."""
    return parsed(text) if "anymps:" in text else None
