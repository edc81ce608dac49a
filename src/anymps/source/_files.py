"""The text of a file and its syntax tree, each read once and shared (nobody may change a tree); the code of a frame."""

from __future__ import annotations

import ast
import io
import linecache
import os
import stat
import tokenize
from functools import lru_cache
from types import FrameType
from typing import Final

from anymps.source._statements import FUNCTIONS, first_row, statements_around

_LARGEST: Final = 4 << 20  # bytes of a file that is read
NO_PYTHON: Final = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
"""What a text that is no Python raises; before Python 3.11.5 any text may raise SystemError (cpython issue 106905)."""


def text_of(file: str) -> str:
    """The text of a file or of a notebook's cell; the empty one where it cannot be read."""
    known = linecache.cache.get(file, ())
    if len(known) == 4 and known[1] is None:  # code that Python was given in place of the file's
        return "".join(known[2])
    try:
        found = os.stat(file)
    except OSError:  # a cell of a notebook, a module in an archive: Python may know it all the same
        return "".join(linecache.getlines(file))
    except ValueError:  # not a file name
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
        with io.FileIO(os.open(file, os.O_RDONLY | os.O_NONBLOCK)) as stream:
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
