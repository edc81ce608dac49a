"""A file's text, its lines as Python counts them, its syntax tree, shared (nobody may change one); a frame's code."""

from __future__ import annotations

import ast
import io
import linecache
import os
import re
import stat
import tokenize
from functools import lru_cache
from types import FrameType
from typing import Final

from anymps.source._statements import FUNCTIONS, first_row, statements_around

_END: Final = re.compile(r"\r\n|\r|\n")
_LARGEST: Final = 4 << 20  # bytes of a file that is read
NO_PYTHON: Final = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What a text that is no Python raises."""


def text_of(file: str) -> str:
    """The text of a file or of a notebook's cell; the empty one where it cannot be read."""
    known = linecache.cache.get(file, ())
    if len(known) == 4 and known[1] is None:  # code that Python was given in place of the file's
        return "".join(known[2])
    try:
        found = os.stat(file)
    except OSError:  # a cell of a notebook, a module in an archive: Python may know it all the same
        return "".join(linecache.getlines(file))
    except ValueError:  # no name of a file at all
        return ""
    # The name of code is whatever its maker says: opening a pipe waits, and reading a device may never end.
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
        return ""
    return _read(file, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=64)
def _read(file: str, changed: int, size: int, inode: int) -> str:
    """The text of a file that is still this one."""
    try:
        # Not by `open`, which a script may have put something else in place of.
        with io.FileIO(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))) as stream:
            content = stream.read(size + 1)
            after = os.fstat(stream.fileno())
        if (after.st_mtime_ns, after.st_size, after.st_ino) != (changed, size, inode) or len(content) != size:
            return ""
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding)
    except (OSError, SyntaxError, UnicodeError, LookupError):
        return ""


@lru_cache(maxsize=32)  # a suite of tests has many refusals in few files
def tree_of(text: str) -> ast.Module:
    """A text as Python reads it. Raises one of `NO_PYTHON` for another."""
    return ast.parse(text)


def parsed(text: str) -> ast.Module | None:
    """The same; None for a text that is no Python."""
    try:
        return tree_of(text)
    except NO_PYTHON:
        return None


def parse_expression(text: str) -> ast.expr | None:
    """A text as one expression; None where it is none."""
    try:
        return ast.parse(text, mode="eval").body
    except NO_PYTHON:
        return None


def tree_of_frame(frame: FrameType) -> ast.Module | None:
    """The tree of a frame's file; None where that is no Python that can be read."""
    return parsed(text_of(frame.f_code.co_filename))


def running_nodes(frame: FrameType) -> list[ast.AST]:
    """The nodes of the statement that runs, of a block those of its head; none where its source is not known."""
    tree = tree_of_frame(frame)
    around = statements_around(tree, frame.f_lineno) if tree is not None else []
    parts: list[ast.AST] = list(around[-1:])
    if around and hasattr(around[-1], "body"):
        parts = [child for child in ast.iter_child_nodes(around[-1]) if not isinstance(child, ast.stmt)]
    return [node for part in parts for node in ast.walk(part)]


def scope_of(tree: ast.Module, frame: FrameType) -> ast.AST:
    """The function that a frame runs; the whole tree where it is none, or not known."""
    code = frame.f_code
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name == code.co_name and first_row(node) == code.co_firstlineno:
            return node
    return tree


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
