"""A statement at a line, with what is known around it: of a file, or of a recording's lines of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from anymps.findings.edits._code import Code, line_starts, without_comment
from anymps.findings.edits._names import Names, names_in_file, names_in_lines
from anymps.record import Site

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_FAR = 40  # lines above that are searched for the blocks around a line


@dataclass(frozen=True)
class Place:
    """A statement's code at `line` and `column` (from 1; 0 where the margin is not known).

    `tests` are those of the `if`s around it and in their chains, `loop` the head of the innermost loop, `inner` the
    statements of the block that its code is the head of, `looped` those of the loop above it, as far as they are known.
    """

    code: Code
    names: Names
    line: int
    column: int = 0
    tests: tuple[ast.expr, ...] = ()
    loop: ast.For | None = None
    inner: tuple[ast.AST, ...] = ()
    function: str = ""
    looped: tuple[ast.AST, ...] = ()

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
    chain = _chain(tree, line)
    if not chain:
        return None
    statement = chain[-1]
    starts = line_starts(text)
    first, last = _rows(statement, line)
    while (
        last > first
        and line >= statement.lineno
        and _is_block(statement)
        and not without_comment(_row(text, starts, last)).endswith(":")
    ):
        last -= 1  # comments before the body
    above = text[starts[first - 1] : starts[last - 1]]
    row = _row(text, starts, last)
    shorter = without_comment(row)
    body = above + row[: row.find(shorter) + len(shorter)]
    margin = len(body) - len(body.lstrip(" \t\f"))
    code = Code.of(body)
    if code is None:
        return None
    tests = [test for each in chain[:-1] for test in _tests(each)] + list(_tests(statement))[1:]
    loops = [each for each in chain if isinstance(each, ast.For) and each is not statement]
    functions = [
        function.name for function in chain[:-1] if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return Place(
        code,
        names_in_file(tree, line),
        first,
        margin + 1,
        tuple(tests),
        loops[-1] if loops else None,
        tuple(getattr(statement, "body", ())) if _is_block(statement) else (),
        functions[-1] if functions else "<module>",
        tuple(loops[-1].body) if loops else (),
    )


def place_at(site: Site) -> Place | None:
    """The statement at a recorded line, by the lines that the recording holds of its file."""
    if not site.known or not site.source.strip():
        return None
    lines = _lines(site)
    if lines.get(site.line, "").strip() != site.source.strip():
        code = Code.of(without_comment(site.source))
        return None if code is None else Place(code, names_in_lines([(site.line, code.statement)]), site.line)
    found = _window(lines, site.line)
    if found is None:
        return None
    first, last, code = found
    margin = _margin(lines[first])
    tests, loop, looped = _around(lines, first, margin)
    read = tuple(sorted(lines.items()))
    return Place(
        code,
        names_in_lines([(first, code.statement), *_statements(read)]),
        first,
        margin + 1,
        tuple(tests),
        loop,
        tuple(_below(lines, last, margin)),
        site.function,
        looped,
    )


def recorded_statements(site: Site) -> tuple[tuple[int, ast.AST], ...]:
    """The statements in the lines that a recording holds of a file, one line each, with their numbers."""
    return _statements(tuple(sorted(_lines(site).items())))


def _chain(tree: ast.Module, line: int) -> list[ast.stmt]:
    """The statements around a line, the outermost first; the last is the one whose own lines hold it."""
    chain: list[ast.stmt] = []
    body: list[ast.stmt] = tree.body
    while True:
        found = next(
            (
                statement
                for statement in body
                if _first(statement) <= line <= (statement.end_lineno or statement.lineno)
            ),
            None,
        )
        if found is None:
            return []
        chain.append(found)
        first, last = _rows(found, line)
        if first <= line <= last:
            return chain
        body = [child for child in ast.iter_child_nodes(found) if isinstance(child, ast.stmt)]
        for part in ast.iter_child_nodes(found):
            if isinstance(part, (ast.ExceptHandler, ast.match_case)):
                body += part.body


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _rows(statement: ast.stmt, line: int) -> tuple[int, int]:
    """The first and the last line of a statement, of a block those of its head, of a decorator its own."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    for decorator in decorators:
        if decorator.lineno <= line <= (decorator.end_lineno or line):
            return decorator.lineno, decorator.end_lineno or line
    body = getattr(statement, "body", None)
    last = statement.end_lineno or statement.lineno
    if isinstance(body, list) and body and _first(body[0]) > statement.lineno:
        last = _first(body[0]) - 1
    return statement.lineno, last


def _row(text: str, starts: list[int], number: int) -> str:
    return text[starts[number - 1] : starts[number] if number < len(starts) else len(text)].rstrip("\r\n")


def _is_block(statement: ast.stmt) -> bool:
    return isinstance(getattr(statement, "body", None), list) and _rows(statement, statement.lineno)[1] < (
        statement.end_lineno or 0
    )


def _tests(statement: ast.AST) -> Iterator[ast.expr]:
    """The tests of an `if` with its whole chain."""
    while isinstance(statement, ast.If):
        yield statement.test
        if len(statement.orelse) != 1:
            return
        statement = statement.orelse[0]


def _lines(site: Site) -> Mapping[int, str]:
    around = dict(enumerate(site.around.split("\n"), site.first)) if site.around else {}
    return {**site.recorded, **around}


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
        depth += _opened(lines[row])
        if depth > 0:
            return True
    depth = 0
    for row in range(last + 1, last + _FAR):
        if row not in lines:
            break
        depth += _opened(lines[row])
        if depth < 0:
            return True
    return False


def _opened(line: str) -> int:
    code = without_comment(line)
    return sum(code.count(bracket) for bracket in "([{") - sum(code.count(bracket) for bracket in ")]}")


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _around(
    lines: Mapping[int, str], first: int, margin: int
) -> tuple[list[ast.expr], ast.For | None, tuple[ast.AST, ...]]:
    """The tests and the loop of the blocks around a line, and what stands in the loop above the line."""
    tests: list[ast.expr] = []
    loop: ast.For | None = None
    looped: list[ast.AST] = []
    for row in range(first - 1, first - _FAR, -1):
        text = lines.get(row)
        if text is None:
            break
        code = Code.of(without_comment(text))
        if code is not None and loop is None:
            looped.append(code.statement)
        if not text.strip() or _margin(text) >= margin:
            continue
        if code is not None and isinstance(code.statement, ast.If):
            tests.append(code.statement.test)
        if code is not None and isinstance(code.statement, ast.For) and loop is None:
            loop = code.statement
        margin = _margin(text)
    return tests, loop, tuple(looped) if loop is not None else ()


def _below(lines: Mapping[int, str], last: int, margin: int) -> Iterator[ast.AST]:
    """The statements of the block below a head, one line each."""
    for row in range(last + 1, last + _FAR):
        text = lines.get(row)
        if text is None or (text.strip() and _margin(text) <= margin):
            return
        code = Code.of(without_comment(text))
        if code is not None:
            yield code.statement


@lru_cache(maxsize=64)
def _statements(lines: tuple[tuple[int, str], ...]) -> tuple[tuple[int, ast.AST], ...]:
    parsed = ((row, Code.of(without_comment(text))) for row, text in lines)
    return tuple((row, code.statement) for row, code in parsed if code is not None)
