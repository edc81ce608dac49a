"""The user's source in a recording: a line, the lines around it, and its statement's comments for anymps.

It is read once, while the program runs. A report quotes the recording and opens no file: a recording may come from
elsewhere, and the files that it names are then none of its business.
"""

from __future__ import annotations

import ast
import io
import linecache
import os
import stat
import tokenize
from functools import lru_cache
from typing import Final, NamedTuple

AROUND: Final = 3
"""Lines kept before and after the one that is recorded, and more where its statement goes on."""

_STATEMENT: Final = 10  # lines before and after it in which its statement is looked for

_LARGEST: Final = 4 << 20  # bytes of a file that is read
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
    return _quote(_lines_of(file), line)


def quote_text(text: str, line: int) -> Quote:
    """The line of a text."""
    return _quote(_split(text), line)


def _quote(lines: tuple[str, ...], line: int) -> Quote:
    if not 0 < line <= len(lines):
        return Quote()
    first, last = _rows(lines, line)
    around = "\n".join(_shortened(each) for each in lines[first - 1 : last])
    return Quote(_shortened(lines[line - 1].strip()), first, around, "\n".join(_comments(lines, line)))


def _rows(lines: tuple[str, ...], line: int) -> tuple[int, int]:
    """First and last of the lines around one, with those between the parentheses that it stands in, or opens.

    Parentheses are counted and no file is parsed: this runs while the program is timed. Where one in a text or a
    comment misleads, a few more lines are kept, or the statement is not whole.
    """
    first, last = max(line - AROUND, 1), min(line + AROUND, len(lines))
    depth = outermost = 0
    for row in range(line - 1, max(line - _STATEMENT, 1) - 1, -1):
        depth += _opened(lines[row - 1])
        if depth > outermost:
            first, outermost = min(first, row), depth
    for row in range(line, min(line + _STATEMENT, len(lines)) + 1):
        outermost += _opened(lines[row - 1])
        if outermost <= 0:
            return first, max(last, row)
    return first, last


def _opened(line: str) -> int:
    return sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))


def _comments(lines: tuple[str, ...], line: int) -> list[str]:
    """The other lines of the innermost statement at a line that speak to anymps; of a compound one, of its head."""
    around = [span for span in _spans(lines) if span[0] <= line <= span[1]]
    first, last = min(around, key=lambda span: span[1] - span[0], default=(line, line))
    return [_shortened(lines[row - 1]) for row in range(first, last + 1) if row != line and "anymps:" in lines[row - 1]]


@lru_cache(maxsize=16)
def _spans(lines: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """First and last line of every statement, without the statements inside of it; of a text that speaks to anymps."""
    if not any("anymps:" in line for line in lines):
        return ()
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            spans.append((node.lineno, max(last, node.lineno)))
    return tuple(spans)


def _lines_of(file: str) -> tuple[str, ...]:
    try:
        found = os.stat(file)
    except OSError:  # a cell of a notebook, a module in an archive: Python may know it all the same
        return tuple(line.rstrip("\r\n") for line in linecache.getlines(file))
    except ValueError:  # no name of a file at all
        return ()
    # The name of code is whatever its maker says: opening a pipe waits, and reading a device may never end.
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
        return ()
    return _read(file, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=64)
def _read(file: str, changed: int, size: int, inode: int) -> tuple[str, ...]:
    """The lines of a file that is still this one."""
    try:
        with open(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            content = stream.read(size + 1)
            after = os.fstat(stream.fileno())
        if (after.st_mtime_ns, after.st_size, after.st_ino) != (changed, size, inode) or len(content) != size:
            return ()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return _split(content.decode(encoding))
    except (OSError, SyntaxError, UnicodeError, LookupError):
        return ()


def _split(text: str) -> tuple[str, ...]:
    """The lines as Python counts them: a form feed ends none."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST else line[:_LONGEST]
