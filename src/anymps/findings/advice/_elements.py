"""Tensors that a loop reads one element at a time, where one read before the loop would do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from anymps.findings._loop import AtLine, number
from anymps.findings.advice._user_line import UserLine
from anymps.findings.edits import place_at
from anymps.source import Place, assignments_in, names_in

_WHOLE: Final = (ast.Name, ast.Attribute)
_SEVERAL: Final = 2  # elements a step


class _Loop(NamedTuple):
    """A loop or a part of a comprehension: its variables, what it runs over, and the names that change in it."""

    variables: frozenset[str]
    target: ast.expr
    over: ast.expr
    changed: frozenset[str]


def elements_advice(line: AtLine) -> str:
    """What to do where the loop around a line reads a tensor element by element; empty where it does not."""
    place = place_at(line.site)
    if place is None or 0 < line.per_step < _SEVERAL:
        return ""
    loops = list(_loops(place))
    user = UserLine(place.code.text, place.code)
    one = f"one wait instead of {number(line.per_step)} a step" if line.per_step else "one wait instead of one each"
    for tensor in user.read:
        for loop in loops:
            name = tensor.value if isinstance(tensor, ast.Subscript) else None
            if isinstance(name, _WHOLE) and isinstance(tensor, ast.Subscript):
                whole = ast.unparse(name)
                if names_in(tensor.slice) & loop.variables and whole.partition(".")[0] not in loop.changed:
                    return f"Read `{whole}` once before the loop, `{whole}.tolist()`, and index that: {one}."
            over = _element_of(loop, tensor)
            if over:
                return f"Loop over `{over}.tolist()` instead of `{over}`: {one}, and its elements are then numbers."
    return ""


def _loops(place: Place) -> Iterator[_Loop]:
    for node in ast.walk(place.code.statement):
        if isinstance(node, ast.comprehension):
            yield _Loop(names_in(node.target), node.target, node.iter, names_in(node.target))
    if place.loop is not None:
        target = place.loop.target
        changed = (each.target for statement in place.looped for each in assignments_in(statement))
        yield _Loop(names_in(target), target, place.loop.iter, names_in(target, *changed))


def _element_of(loop: _Loop, tensor: ast.expr) -> str:
    """What a loop runs over, if `tensor` is its variable: `y` of `for y_i in y` and `for i, y_i in enumerate(y)`."""
    over, target = loop.over, loop.target
    if isinstance(over, ast.Call) and ast.unparse(over.func) == "enumerate" and over.args:
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(("index", "element")):
            return ""
        over, target = over.args[0], target.elts[1]
    same = isinstance(tensor, ast.Name) and isinstance(target, ast.Name) and tensor.id == target.id
    return ast.unparse(over) if same and isinstance(over, _WHOLE) else ""
