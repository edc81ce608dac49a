"""The statements of a syntax tree: those around a line, the lines that are their own, and what they give names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from anymps.source._nodes import contains

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a node that hold statements, or parts with such."""


def inner_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of the blocks of a node, without those in them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from child.body


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of the scopes in it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, SCOPES):
            yield from own_nodes(child)


def statements_around(tree: ast.AST, line: int) -> list[ast.stmt]:
    """The statements that cover a line, the outermost first; a decorator is a line of what it decorates."""
    around: list[ast.stmt] = []
    found: ast.AST | None = tree
    while found is not None:
        covering = [each for each in inner_statements(found) if first_row(each) <= line <= (each.end_lineno or line)]
        found = covering[-1] if covering else None
        around += covering[-1:]
    return around


def function_around(tree: ast.AST, line: int) -> str:
    """The name of the innermost function around a line."""
    functions = [each.name for each in statements_around(tree, line) if isinstance(each, FUNCTIONS)]
    return functions[-1] if functions else "<module>"


def loops_around(scope: ast.AST, line: int) -> list[ast.For | ast.AsyncFor | ast.While]:
    """The loops of a scope whose rounds a line is in, the outermost first."""
    return [each for each in statements_around(scope, line) if isinstance(each, LOOPS) and each.lineno < line]


def first_row(statement: ast.stmt) -> int:
    """The first line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def own_rows(statement: ast.stmt, line: int) -> tuple[int, int]:
    """The first and the last line of a statement, of a block those of its head, of a decorator at the line its own."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    for decorator in decorators:
        if decorator.lineno <= line <= (decorator.end_lineno or line):
            return decorator.lineno, decorator.end_lineno or line
    body = getattr(statement, "body", None)
    last = statement.end_lineno or statement.lineno
    if isinstance(body, list) and body and first_row(body[0]) > statement.lineno:
        last = first_row(body[0]) - 1
    return statement.lineno, last


def rows_at(tree: ast.AST, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement at a line; of a block, those of its head."""
    spans = [own_rows(each, line) for each in statements_around(tree, line)]
    return next((span for span in reversed(spans) if span[0] <= line <= span[1]), (line, line))


def is_main_guard(statement: ast.stmt) -> bool:
    """Of `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and contains(statement.test, "__name__")


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with what it stands for: `np` and `numpy`. `.` begins a relative one."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or name, name
    elif isinstance(node, ast.ImportFrom):
        module = f".{node.module or ''}" if node.level else node.module
        yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in node.names)


class Assignment(NamedTuple):
    """What a statement binds: `value` is None where it is unpacked or iterated."""

    target: ast.expr
    value: ast.expr | None
    line: int

    @property
    def name(self) -> str:
        """The code of the target."""
        return ast.unparse(self.target)


def assignments(node: ast.AST) -> Iterator[Assignment]:
    """All that a statement binds by itself."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value, node.lineno)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        yield Assignment(node.target, node.value, node.lineno)
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _targets(node.target, None, node.lineno)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield from _targets(item.optional_vars, None, node.lineno)


def assignments_in(tree: ast.AST) -> Iterator[Assignment]:
    """All that is bound anywhere in a tree."""
    return (each for node in ast.walk(tree) for each in assignments(node))


def _targets(target: ast.expr, value: ast.expr | None, line: int) -> Iterator[Assignment]:
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield Assignment(target, value, line)
        return
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
    for index, element in enumerate(target.elts):
        yield from _targets(element, parts[index] if parts is not None else None, line)


def last_given(scope: ast.AST, name: str, line: int) -> Assignment | None:
    """The last assignment to a name, an attribute or an item up to a line, whose own does not make it of itself."""
    best: Assignment | None = None
    for each in assignments_in(scope):
        later = (best.line if best is not None else 0) <= each.line <= line and each.name == name
        if later and (each.line < line or each.value is None or not contains(each.value, name)):
            best = each
    return best


def methods_of(tree: ast.Module, qualname: str) -> list[ast.FunctionDef]:
    """The methods of a class."""
    scope: ast.AST | None = tree
    for name in qualname.split("."):
        classes = ast.iter_child_nodes(scope) if scope is not None else iter(())
        scope = next((node for node in classes if isinstance(node, ast.ClassDef) and node.name == name), None)
    return [node for node in scope.body if isinstance(node, ast.FunctionDef)] if isinstance(scope, ast.ClassDef) else []
