"""What a changed statement leaves behind: the names that it gives a value, and the lines that use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from anymps.fix._lines import statement_lines, tree_of

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_COLLECTING: Final = frozenset({"add", "append", "appendleft", "extend", "insert", "setdefault", "update"})


def later_uses(text: str, line: int) -> dict[str, list[int]]:
    """The lines of a file that use what the statement at a line keeps, by what it keeps: `history` of
    `history.append(loss)`, `total` of `total += loss`, `self.total` too.

    The lines of that statement are not among them. A name of a function is looked for in that function alone.
    """
    tree = tree_of(text)
    first, last = statement_lines(text, line)
    within = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and first <= node.lineno <= last]
    kept = {name for node in within for name in _kept(node)}
    found: dict[str, list[int]] = {}
    for name in sorted(kept):
        scope = _scope(tree, first) if "." not in name else tree
        lines = set(_reading_lines(scope, name))
        found[name] = sorted(at for at in lines if not first <= at <= last)
    return {name: lines for name, lines in found.items() if lines}


def _kept(statement: ast.stmt) -> Iterator[str]:
    """What a statement puts a value into."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr in _COLLECTING:
            targets = [function.value]
    for target in targets:
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            while isinstance(part, ast.Subscript):
                part = part.value
            if isinstance(part, (ast.Name, ast.Attribute)):
                yield ast.unparse(part)


def _scope(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, else the module."""
    around = [
        node for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    return max(around, key=lambda node: node.lineno, default=tree)


def _within(scope: ast.AST, name: str) -> Iterator[ast.AST]:
    """What is in a scope, without the functions in it that have a parameter of that name: theirs is another one."""
    yield scope
    for node in ast.iter_child_nodes(scope):
        given = ast.walk(node.args) if isinstance(node, _FUNCTIONS) else ()
        if not any(isinstance(part, ast.arg) and part.arg == name for part in given):
            yield from _within(node, name)


def _reading_lines(scope: ast.AST, name: str) -> Iterator[int]:
    for node in _within(scope, name):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and ast.unparse(node) == name:
            yield node.lineno
