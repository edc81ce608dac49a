"""The text of a file as lines, as Python counts them, and where they stand after a change.

A form feed or a line separator ends none.
"""

from __future__ import annotations

import io
import re
import tokenize
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

_END: Final = re.compile(r"\r\n|\r|\n")


@lru_cache(maxsize=64)
def rows(text: str) -> tuple[str, ...]:
    """The lines without their ends."""
    found = tuple(_END.split(text))
    return found if found[-1] else found[:-1]


@lru_cache(maxsize=64)
def line_starts(text: str) -> tuple[int, ...]:
    """Where each line begins."""
    return (0, *(found.end() for found in _END.finditer(text)))


def line_end(before: str, after: str = "") -> str:
    """How the last whole line of a text ends; without one how the first line of the text after it does."""
    found = _END.findall(before)
    first = _END.search(after)
    return found[-1] if found else first[0] if first else "\n"


def opened(line: str) -> int:
    """How many more parentheses a line opens than it closes, those in texts included."""
    return sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))


def without_comment(source: str) -> str:
    """A source line without its comment, as far as it can be read."""
    code = source.strip()
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT and "\n" not in code[: code.find(token.string)]:
                return code[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError):
        pass
    return code


def comments_in(code: str) -> list[str]:
    """The comment of a line, or the whole line if Python cannot tokenize it."""
    found: list[str] = []
    try:
        tokens = tokenize.generate_tokens(io.StringIO(code).readline)
        found.extend(token.string for token in tokens if token.type == tokenize.COMMENT)
    except (tokenize.TokenError, SyntaxError):
        return found or [code]
    return found


def rows_within_texts(text: str) -> set[int]:
    """Lines that begin within a text over several lines: their margin is part of it."""
    lines: set[int] = set()
    begun: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            lines.update(range(token.start[0] + 1, token.end[0] + 1))
        elif name.endswith("STRING_START"):  # of an f-string, from Python 3.12 on
            begun.append(token.start[0])
        elif name.endswith("STRING_END"):
            lines.update(range(begun.pop() + 1, token.end[0] + 1))
    return lines


def new_line(before: str, after: str, line: int) -> int:
    """Where a line of the text `before` stands in the text `after`: the one most like it if it was changed."""
    if len(rows(before)) == len(rows(after)):
        return line  # changed in place
    for first, last, start, end in _blocks(before, after):
        if first < line <= last:
            if last - first == end - start or start == end:
                return start + min(line - first, max(end - start, 1))
            old, new = rows(before)[line - 1], rows(after)
            return max(range(start, end), key=lambda at: SequenceMatcher(None, old, new[at]).ratio()) + 1
    return line


@lru_cache(maxsize=16)
def _blocks(before: str, after: str) -> list[tuple[int, int, int, int]]:
    """Where the lines of a text are after a change: the same above, what differs, the same below."""
    old, new = rows(before), rows(after)
    most = min(len(old), len(new))
    first = next((at for at in range(most) if old[at] != new[at]), most)
    same = next((at for at in range(most - first) if old[-1 - at] != new[-1 - at]), most - first)
    inner = SequenceMatcher(None, old[first : len(old) - same], new[first : len(new) - same], autojunk=False)
    moved = [
        (one + first, two + first, three + first, four + first) for _, one, two, three, four in inner.get_opcodes()
    ]
    return [(0, first, 0, first), *moved, (len(old) - same, len(old), len(new) - same, len(new))]
