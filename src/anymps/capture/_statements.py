"""Statements of a source file: the statement at a line, the names it binds, and the functions around it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache


def statement_at(tree: ast.AST, line: int) -> ast.stmt | None:
    """The innermost statement that covers a line; only what covers it is looked into."""
    best: ast.stmt | None = None
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            covers = node.lineno <= line <= (node.end_lineno or node.lineno)
            inner = statement_at(node, line) if covers else None
            best = inner or (node if covers and isinstance(node, ast.stmt) else best)
        elif isinstance(node, ast.match_case):
            best = statement_at(node, line) or best
    return best


def parsed(filename: str) -> ast.Module | None:
    return _tree("".join(linecache.getlines(filename)))


@lru_cache(maxsize=64)  # a suite has many refusals in few files
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def function_at(tree: ast.Module, name: str, first_line: int) -> ast.AST | None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            starts = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            if min(starts) == first_line:
                return node
    return None


def methods_of(tree: ast.Module, qualname: str) -> list[ast.FunctionDef]:
    scope: ast.AST | None = tree
    for name in qualname.split("."):
        classes = ast.iter_child_nodes(scope) if scope is not None else iter(())
        scope = next((node for node in classes if isinstance(node, ast.ClassDef) and node.name == name), None)
    return [node for node in scope.body if isinstance(node, ast.FunctionDef)] if isinstance(scope, ast.ClassDef) else []


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, int]]:
    """(target, value, line) of all that a statement binds; the value is None where it is unpacked or iterated."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value, node.lineno)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        yield node.target, node.value, node.lineno
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _targets(node.target, None, node.lineno)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield from _targets(item.optional_vars, None, node.lineno)


def _targets(target: ast.expr, value: ast.expr | None, line: int) -> Iterator[tuple[ast.expr, ast.expr | None, int]]:
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value, line
        return
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
    for index, element in enumerate(target.elts):
        yield from _targets(element, parts[index] if parts is not None else None, line)


def contains(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.expr) and ast.unparse(node) == name for node in ast.walk(value))
