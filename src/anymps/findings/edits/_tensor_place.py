"""What hangs on `x.is_cuda`, which is never true on mps: a block that moves other tensors to where x is."""

from __future__ import annotations

import ast

from anymps.source import Place, Splice


def tells_of_tensor(node: ast.AST) -> bool:
    """`x.is_cuda`."""
    return isinstance(node, ast.Attribute) and node.attr == "is_cuda"


def owner_around(place: Place) -> str:
    """The code of the tensor on whose `is_cuda` the statement hangs; empty if there is none."""
    around = [part for test in place.tests for part in _needed(test)]
    return ast.unparse(around[-1].value) if around else ""


def of_block(place: Place, node: ast.Attribute) -> list[Splice]:
    """`if x.is_cuda or x.is_mps:` for an `x.is_cuda` above a block that moves tensors."""
    code = place.code
    head = code.statement
    if not isinstance(head, ast.If) or node not in _needed(head.test):
        return []
    there = ast.dump(ast.parse(f"{ast.unparse(node.value)}.device", mode="eval").body)
    if not any(_moves(part, there) for statement in place.inner for part in ast.walk(statement)):
        return []
    start, end = code.span(node)
    opening, closing = ("", "") if head.test is node else ("(", ")")
    mps = f" or {code.source(node.value)}.is_mps{closing}"
    return [*([Splice(start, start, opening)] if opening else []), Splice(end, end, mps)]


def _needed(test: ast.expr) -> list[ast.Attribute]:
    """Each `x.is_cuda` without which a test does not hold."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return [part for part in parts if isinstance(part, ast.Attribute) and tells_of_tensor(part) and _is_plain(part)]


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_plain(node.value))


def _moves(node: ast.AST, there: str) -> bool:
    """`y.cuda()`, and what an edit has made of it: `y.to(x.device)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr == "cuda" or (node.func.attr == "to" and there in map(ast.dump, node.args))
