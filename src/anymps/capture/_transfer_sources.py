"""Finds what made a CPU tensor just before its copy to mps: a factory of torch, or an index into a data set.

Runs once for each line that copies. The frames exist then, so names are resolved without running any code.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import FrameType

import torch

from anymps.capture._origins import kept_as, resolve, user_frames
from anymps.source import (
    LOOPS,
    assignments_in,
    last_given,
    last_name,
    loops_around,
    names_argument,
    running_nodes,
    scope_of,
    tree_of_frame,
)

_FACTORIES = frozenset(
    {"arange", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn"}
    | {"randperm", "tril_indices", "triu_indices", "zeros"}
)
_FROM_VALUES = frozenset({"as_tensor", "tensor"})
_COUNTS = frozenset({"dim", "len", "numel", "size"})
_MOVES = frozenset({"cuda", "to", "type_as"})


@dataclass(frozen=True)
class Birth:
    """Where a tensor was made, by which call, and whether that draws from a generator it was given."""

    file: str
    line: int
    function: str
    expression: str
    generator: bool


def find_birth(tensor: torch.Tensor, is_internal: Callable[[str], bool]) -> Birth | None:
    """The call that made `tensor`, in the innermost frame of the user's.

    None where it was given from outside, holds data, or was made before the loop that copies it. A part of a random
    order is no data, wherever that was drawn.
    """
    for node, frame in _running(is_internal):
        moved = _moved(node, frame)
        made = _made_by(moved, frame) or _drawn_order(moved, frame) if moved is not None else None
        if made is None and isinstance(node, ast.Name) and resolve(node, frame)[1] is tensor:
            value = _assigned(node.id, frame)
            made = _made_by(value, frame) if value is not None else None
            if made is None:
                return None
        if made is not None:
            code, generator = frame.f_code, any(keyword.arg == "generator" for keyword in made.keywords)
            return Birth(code.co_filename, made.lineno, code.co_name, ast.unparse(made), generator)
    return None


def find_data_set(tensor: torch.Tensor, is_internal: Callable[[str], bool]) -> tuple[str, torch.Tensor, bool] | None:
    """The larger tensor of the CPU that the running line took `tensor` from by an index, `images`, with its name.

    The last says that it outlives the rounds of the loop by the source. None where nothing shows one, or where the loop
    around the line gives it that name: then it is a batch itself.
    """
    for node, frame in _running(is_internal):
        moved = _moved(node, frame)
        if isinstance(moved, ast.Name):
            moved = _assigned(moved.id, frame) if resolve(moved, frame)[1] is tensor else None
        for taken in ast.walk(moved) if moved is not None else ():
            owner = taken.value if isinstance(taken, ast.Subscript) else None
            held = resolve(owner, frame)[1] if owner is not None else None
            if owner and isinstance(held, torch.Tensor) and held.device.type == "cpu" and held.nbytes > tensor.nbytes:
                name = ast.unparse(owner)
                given = {each.name for loop in _loops(frame) for each in assignments_in(loop)}
                return None if name in given else (name, held, _outlives(owner, frame))
    return None


def find_name(tensor: torch.Tensor, is_internal: Callable[[str], bool]) -> tuple[str, str]:
    """What the running line of the user's calls `tensor`, `self.mask`, and how its module keeps it (`kept_as`).

    Empty texts if that cannot be told.
    """
    for node, frame in _running(is_internal):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and resolve(node, frame)[1] is tensor:
            return ast.unparse(node), kept_as(node, frame)
    return "", ""


def _running(is_internal: Callable[[str], bool]) -> Iterator[tuple[ast.AST, FrameType]]:
    """The nodes of the user's running statement, each with the frame; none if it is unknown."""
    for frame in islice(user_frames(is_internal), 1):
        yield from ((node, frame) for node in running_nodes(frame))


def _moved(node: ast.AST, frame: FrameType) -> ast.expr | None:
    """What a call takes to the device: `x` of `x.to(device)`, the call itself of `torch.tensor(2.0, device=device)`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        return node.func.value
    if _is_new_tensor(node, frame):
        return node
    return node if _torch_function(node, frame) in _FROM_VALUES and names_argument(node, "device") else None


def _made_by(value: ast.expr, frame: FrameType) -> ast.Call | None:
    """The factory call in an expression that holds no other tensor of the CPU; one of mps can only give its shape."""
    factory = None
    left: list[ast.AST] = [value]
    while left:
        node = left.pop()
        if isinstance(node, ast.Call):
            name = _torch_function(node, frame)
            from_values = name in _FROM_VALUES or _is_new_tensor(node, frame)
            if (name in _FACTORIES and not names_argument(node, "device")) or (
                from_values and _is_constant(node, frame)
            ):
                factory = node
                continue
            if _takes_elsewhere(node, frame):
                return None
        elif isinstance(node, ast.expr):
            held = resolve(node, frame)[1]
            if isinstance(held, torch.Tensor) and held.device.type == "cpu":
                return None
        left += ast.iter_child_nodes(node)
    return factory


def _drawn_order(value: ast.expr, frame: FrameType) -> ast.Call | None:
    """`torch.randperm(n)` of `order[i : i + 4]`, where a line above draws the order; also of a name for this part."""
    part = _last_given(value.id, frame)[1] if isinstance(value, ast.Name) else value
    if not isinstance(part, ast.Subscript) or not isinstance(part.value, ast.Name):
        return None
    drawn = _last_given(part.value.id, frame)[1]
    made = _made_by(drawn, frame) if drawn is not None else None
    return made if made is not None and _torch_function(made, frame) == "randperm" else None


def _takes_elsewhere(call: ast.Call, frame: FrameType) -> bool:
    """Whether a call that is none of torch's, such as `Dirichlet(torch.ones(3))`, is given what a factory made."""
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    if not any(_torch_function(node, frame) in _FACTORIES for part in given for node in ast.walk(part)):
        return False
    if not isinstance(call.func, ast.Attribute):
        return True
    found, owner = resolve(call.func.value, frame)
    of_torch = isinstance(owner, torch.Tensor) or getattr(owner, "__name__", "").partition(".")[0] == "torch"
    return found and not of_torch


def _torch_function(node: ast.AST, frame: FrameType) -> str:
    """`arange` of `torch.arange(...)`, else the empty text."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        found, owner = resolve(node.func.value, frame)
        if found and owner is torch:
            return node.func.attr
    return ""


def _is_new_tensor(call: ast.Call, frame: FrameType) -> bool:
    """Whether it is `x.new_tensor(...)` of a tensor that lies on mps, or of one that cannot be told."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "new_tensor":
        return False
    owner = resolve(call.func.value, frame)[1]
    return not isinstance(owner, torch.Tensor) or owner.device.type == "mps"


def _is_constant(call: ast.Call, frame: FrameType) -> bool:
    """Whether a tensor is made of numbers, of a shape, or of what a module keeps: not of the batch's data."""
    return bool(call.args) and _is_number(call.args[0], frame)


def _is_number(value: ast.expr, frame: FrameType) -> bool:
    """The same of an argument; functions are known by their names, as nothing of the user's may run here."""
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, (ast.List, ast.Tuple, ast.UnaryOp, ast.BinOp)):
        return all(_is_number(part, frame) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))
    if isinstance(value, ast.Call):
        owner = resolve(value.func.value, frame)[1] if isinstance(value.func, ast.Attribute) else None
        computed = owner is math or ast.unparse(value.func) in ("float", "int")
        return last_name(value) in _COUNTS or (computed and _is_constant(value, frame))
    shape = value.value if isinstance(value, ast.Subscript) else value
    if isinstance(shape, ast.Attribute) and shape.attr == "shape":
        return True
    held = resolve(value, frame)[1] if shape is value else None
    if isinstance(value, ast.Attribute) and isinstance(held, (list, tuple)):
        return all(isinstance(item, (int, float)) for item in held)
    return isinstance(held, (int, float))


def _assigned(name: str, frame: FrameType) -> ast.expr | None:
    """What the last assignment to a name before the running line gives it, as often as it is copied."""
    line, value = _last_given(name, frame)
    return value if _loops(frame, line)[-1:] == _loops(frame)[-1:] else None


def _last_given(name: str, frame: FrameType) -> tuple[int, ast.expr | None]:
    """The last assignment to a name before the running line, by its own line, and what it gives."""
    scope = _scope(frame)
    given = last_given(scope, name, frame.f_lineno) if scope is not None else None
    return (given.line, given.value) if given is not None else (0, None)


def _outlives(owner: ast.AST, frame: FrameType) -> bool:
    """Whether a name stands for the same thing in each round: set before the loop around the line, or by the module."""
    tree = tree_of_frame(frame)
    if not isinstance(owner, ast.Name) or tree is None:
        return False
    if owner.id in frame.f_locals:
        return bool(_loops(frame))
    loops = (node for node in ast.walk(tree) if isinstance(node, LOOPS))
    return not any(each.name == owner.id for loop in loops for each in assignments_in(loop))


def _scope(frame: FrameType) -> ast.AST | None:
    tree = tree_of_frame(frame)
    return scope_of(tree, frame) if tree is not None else None


def _loops(frame: FrameType, line: int | None = None) -> list[ast.For | ast.AsyncFor | ast.While]:
    """The loops of the running function around a line of it, or around the one that runs."""
    scope = _scope(frame)
    return loops_around(scope, frame.f_lineno if line is None else line) if scope is not None else []
