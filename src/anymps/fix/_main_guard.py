"""Moves the end of a script under `if __name__ == "__main__":`, so that its workers can import it."""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections.abc import Sequence

from anymps.source import FUNCTIONS, is_main_guard, line_end, line_starts, tree_of

_HEAD = 'if __name__ == "__main__":'
_MARGIN = "    "
_KEPT_ABOVE = (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)


def guarded_line(text: str) -> int | None:
    """The line from which a script's end would be guarded: what comes after its last import, function and class.

    Functions of the script still find their globals, and workers the functions and classes that they are sent by name.
    None where there is a guard already, or nothing to guard.
    """
    body = tree_of(text).body
    start = _start(body)
    return None if start == len(body) or any(map(is_main_guard, body)) else body[start].lineno


def with_guard(text: str) -> str | None:
    """The text with its end under the guard; None where `guarded_line` is."""
    line = guarded_line(text)
    if line is None:
        return None
    body = tree_of(text).body
    start = _start(body)
    starts = [*line_starts(text), len(text)]
    lines = [text[first:end] for first, end in itertools.pairwise(starts)]
    above = line - 1
    while above > 0 and lines[above - 1].lstrip().startswith("#"):
        above -= 1  # a comment goes with what it is about
    if start:  # a text over several lines may end with one that looks like a comment
        above = max(above, _end(body[start - 1]))
    last = _end(body[-1])
    kept = _within_texts(text)
    end = line_end(text[: starts[line - 1]], text)
    gap = end if above > 0 and lines[above - 1].strip() else ""
    inner = [
        row if number in kept or not row.strip() else f"{_MARGIN}{row}"
        for number, row in enumerate(lines[above:last], above + 1)
    ]
    return "".join([*lines[:above], gap, f"{_HEAD}{end}", *inner, *lines[last:]])


def _within_texts(text: str) -> set[int]:
    """Lines that begin within a text over several lines: their margin is part of it."""
    lines: set[int] = set()
    opened: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            lines.update(range(token.start[0] + 1, token.end[0] + 1))
        elif name.endswith("STRING_START"):  # of an f-string, from Python 3.12 on
            opened.append(token.start[0])
        elif name.endswith("STRING_END"):
            lines.update(range(opened.pop() + 1, token.end[0] + 1))
    return lines


def _start(body: Sequence[ast.stmt]) -> int:
    last = [at for at, statement in enumerate(body) if isinstance(statement, _KEPT_ABOVE)]
    return last[-1] + 1 if last else 0


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
