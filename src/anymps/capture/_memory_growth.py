"""Finds the variable that keeps more tensors on mps from step to step, and the line that adds them.

Compares the second and the fifth step of an optimizer, while the loop's frames exist: a container that holds more
tensors than before, or a tensor whose graph reaches back to the one that the variable held then.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from anymps.capture._origins import user_frames
from anymps.source import assignments, contains, tree_of_frame

_FIRST, _SECOND = 2, 5
_GROWS_BY = _SECOND - _FIRST
_MOST_ITEMS, _MOST_NODES, _MOST_NAMES = 10_000, 5_000, 500
_ADDING = frozenset({"add", "append", "appendleft", "extend", "insert", "setdefault", "update"})

Node = tuple[str, int]
"""Name and sequence number of a node of autograd's graph: what tells it without keeping it."""


@dataclass(frozen=True)
class GrowingVariable:
    """A variable that keeps tensors, the line that gives them to it, and whether it does so through a graph."""

    file: str
    line: int
    function: str
    name: str
    graph: bool


class MemoryGrowth:
    """Compares what the loop's variables hold in two steps."""

    def __init__(self, is_internal: Callable[[str], bool]) -> None:
        self._is_internal = is_internal
        self._steps = 0
        self._held: dict[tuple[str, str, str], int | Node] = {}

    def step(self) -> list[GrowingVariable]:
        """An optimizer is about to step; the growing variables found, in one step of all."""
        self._steps += 1
        if self._steps not in (_FIRST, _SECOND):
            return []
        found = []
        for frame in user_frames(self._is_internal):
            code = frame.f_code
            for name, value in _variables(frame):
                key = (code.co_filename, code.co_name, name)
                if self._steps == _FIRST:
                    held = _held_by(value)
                    if held is not None:
                        self._held[key] = held
                elif key in self._held and _keeps_more(value, self._held[key]):
                    found += _lines(frame, name, graph=isinstance(value, torch.Tensor))
        return found


def _variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """The frame's variables, and the attributes of plain objects among them."""
    for name, value in list(frame.f_locals.items())[:_MOST_NAMES]:
        yield name, value
        if type(value).__module__ == frame.f_globals.get("__name__") and not isinstance(value, type):
            for attribute, item in list(getattr(value, "__dict__", {}).items())[:_MOST_NAMES]:
                yield f"{name}.{attribute}", item


def _held_by(value: Any) -> int | Node | None:
    """How many tensors on mps a container holds, or the node that made a tensor."""
    if isinstance(value, torch.Tensor):
        node = value.grad_fn if value.device.type == "mps" else None
        return (node.name(), node._sequence_nr()) if node is not None else None
    if type(value) in (list, deque, dict, set):
        items = list(value.values() if isinstance(value, dict) else value)[-_MOST_ITEMS:]
        flat = (part for item in items for part in (item if isinstance(item, (list, tuple)) else (item,)))
        return sum(isinstance(part, torch.Tensor) and part.device.type == "mps" for part in flat)
    return None


def _keeps_more(value: Any, before: int | Node) -> bool:
    held = _held_by(value)
    if isinstance(before, int):
        return isinstance(held, int) and held >= before + _GROWS_BY
    return isinstance(held, tuple) and held != before and _reaches(value.grad_fn, before)


def _reaches(node: Any, wanted: Node) -> bool:
    """Whether a node of autograd's graph holds another one."""
    left, seen = [node], {node}
    while left and len(seen) < _MOST_NODES:
        for inner, _ in left.pop().next_functions:
            if inner is None or inner in seen:
                continue
            if (inner.name(), inner._sequence_nr()) == wanted:
                return True
            seen.add(inner)
            left.append(inner)
    return False


def _lines(frame: FrameType, name: str, *, graph: bool) -> list[GrowingVariable]:
    """The one line of the file that gives a variable more to hold; none if there are several."""
    code, tree = frame.f_code, tree_of_frame(frame)
    lines = {line for node in ast.walk(tree) for line in _giving(node, name)} if tree is not None else set()
    return [GrowingVariable(code.co_filename, lines.pop(), code.co_name, name, graph)] if len(lines) == 1 else []


def _giving(node: ast.AST, name: str) -> Iterator[int]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
        if ast.unparse(node.func.value) == name:
            yield node.lineno
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        for target, value, line in assignments(node):
            own = isinstance(node, ast.AugAssign) or (value is not None and contains(value, name))
            item = isinstance(target, ast.Subscript) and ast.unparse(target.value) == name
            if item or (own and ast.unparse(target) == name):
                yield line
