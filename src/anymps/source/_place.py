"""A statement at a line, with what is known around it: of a file, or of a recording's lines of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from anymps.source._code import Code
from anymps.source._files import line_starts, opened, rows, without_comment
from anymps.source._names import Names, names_in_file, names_in_lines
from anymps.source._statements import FUNCTIONS, own_rows, statements_around

_FAR = 40  # lines above that are searched for the blocks around a line


@dataclass(frozen=True)
class Place:
    """A statement's code at `line` and `column` (from 1; 0 where the margin is not known).

    `tests` are those of the `if`s around it and in their chains, `loop` the head of the innermost loop, `inner` the
    statements of the block that its code is the head of, as far as they are known.
    """

    code: Code
    names: Names
    line: int
    column: int = 0
    tests: tuple[ast.expr, ...] = ()
    loop: ast.For | None = None
    inner: tuple[ast.AST, ...] = ()
    function: str = ""

    @property
    def counter(self) -> str:
        """The counter of the loop around it: `i` of `for i, x in enumerate(loader)`, `k` of `for k in range(9)`.

        `_` is none: it says that nobody reads it.
        """
        if self.loop is None:
            return ""
        target, iterated, counting = self.loop.target, ast.unparse(self.loop.iter), "range("
        if isinstance(target, ast.Tuple) and target.elts:
            target, counting = target.elts[0], "enumerate("
        name = target.id if isinstance(target, ast.Name) and counting in iterated else ""
        return name if name.strip("_") else ""


def place_in_file(text: str, tree: ast.Module, line: int) -> Place | None:
    """The innermost statement of a file at a line, of a block its head; None where there is none by itself."""
    chain: list[ast.stmt] = []
    first = last = 0
    for statement in statements_around(tree, line):
        chain.append(statement)
        first, last = own_rows(statement, line)
        if first <= line <= last:
            break
    if not first <= line <= last:
        return None
    statement, lines = chain[-1], rows(text)
    if line >= statement.lineno and _is_block(statement):
        while last > first and not without_comment(lines[last - 1]).endswith(":"):
            last -= 1  # comments before the body
    row = lines[last - 1]
    shorter = without_comment(row)
    body = text[line_starts(text)[first - 1] : line_starts(text)[last - 1]] + row[: row.find(shorter) + len(shorter)]
    code = Code.of(body)
    if code is None:
        return None
    tests = [test for each in chain[:-1] for test in _tests(each)] + list(_tests(statement))[1:]
    loops = [each for each in chain[:-1] if isinstance(each, ast.For)]
    functions = [each.name for each in chain[:-1] if isinstance(each, FUNCTIONS)]
    return Place(
        code,
        names_in_file(tree, line),
        first,
        _margin(body) + 1,
        tuple(tests),
        loops[-1] if loops else None,
        tuple(getattr(statement, "body", ())) if _is_block(statement) else (),
        functions[-1] if functions else "<module>",
    )


def place_in_lines(lines: Mapping[int, str], line: int, source: str, function: str) -> Place | None:
    """The statement at a line whose code is `source`, by the lines that are known of its file, in a function."""
    if not source.strip():
        return None
    if lines.get(line, "").strip() != source.strip():
        code = Code.of(without_comment(source))
        return None if code is None else Place(code, names_in_lines([(line, code.statement)]), line)
    found = _window(lines, line)
    if found is None:
        return None
    first, last, code = found
    margin = _margin(lines[first])
    known = statements_in(lines)
    tests, loop = _around(lines, dict(known), first, margin)
    names = names_in_lines([(first, code.statement), *known])
    inner = tuple(_below(lines, dict(known), last, margin))
    return Place(code, names, first, margin + 1, tuple(tests), loop, inner, function)


def statements_in(lines: Mapping[int, str]) -> tuple[tuple[int, ast.AST], ...]:
    """The statements in single lines of a file, with their numbers."""
    return _statements(tuple(sorted(lines.items())))


def _is_block(statement: ast.stmt) -> bool:
    return isinstance(getattr(statement, "body", None), list) and own_rows(statement, statement.lineno)[1] < (
        statement.end_lineno or 0
    )


def _tests(statement: ast.AST) -> Iterator[ast.expr]:
    """The tests of an `if` with its whole chain."""
    while isinstance(statement, ast.If):
        yield statement.test
        if len(statement.orelse) != 1:
            return
        statement = statement.orelse[0]


def _window(lines: Mapping[int, str], line: int) -> tuple[int, int, Code] | None:
    """The smallest run of lines around one that is a statement by itself, and in no parenthesis."""
    for size in range(1, 12):
        for first in range(line, line - size, -1):
            rows = range(first, first + size)
            if not all(row in lines for row in rows) or line not in rows:
                continue
            *whole, last = [lines[row] for row in rows]
            code = Code.of("\n".join([*whole, last.rstrip() if whole else without_comment(last)]))
            if code is not None and not _is_within(lines, first, rows[-1]):
                return first, rows[-1], code
    return None


def _is_within(lines: Mapping[int, str], first: int, last: int) -> bool:
    """Whether a parenthesis is open before some lines, as far as the lines around them tell."""
    depth = 0
    for row in range(first - 1, first - _FAR, -1):
        if row not in lines:
            break
        depth += opened(without_comment(lines[row]))
        if depth > 0:
            return True
    depth = 0
    for row in range(last + 1, last + _FAR):
        if row not in lines:
            break
        depth += opened(without_comment(lines[row]))
        if depth < 0:
            return True
    return False


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _around(
    lines: Mapping[int, str], known: Mapping[int, ast.AST], first: int, margin: int
) -> tuple[list[ast.expr], ast.For | None]:
    """The tests and the loop of the blocks around a line."""
    tests: list[ast.expr] = []
    loop: ast.For | None = None
    for row in range(first - 1, first - _FAR, -1):
        if row not in lines:
            break
        text, statement = lines[row], known.get(row)
        if not text.strip() or _margin(text) >= margin:
            continue
        if isinstance(statement, ast.If):
            tests.append(statement.test)
        if isinstance(statement, ast.For) and loop is None:
            loop = statement
        margin = _margin(text)
    return tests, loop


def _below(lines: Mapping[int, str], known: Mapping[int, ast.AST], last: int, margin: int) -> Iterator[ast.AST]:
    """The statements of the block below a head, one line each."""
    for row in range(last + 1, last + _FAR):
        if row not in lines or (lines[row].strip() and _margin(lines[row]) <= margin):
            return
        if row in known:
            yield known[row]


@lru_cache(maxsize=64)
def _statements(lines: tuple[tuple[int, str], ...]) -> tuple[tuple[int, ast.AST], ...]:
    parsed = ((row, Code.of(without_comment(text))) for row, text in lines)
    return tuple((row, code.statement) for row, code in parsed if code is not None)
