"""Where a refused tensor came from: the variable that holds it in the user's frames, and the line that made it.

Nothing is recorded for this until MPS refuses a call. The frames then still exist. The tensor is looked up in the names
on the failing line, from the user's innermost frame outwards. The source has the last assignment to that name; for
`self.scale`, the one in the class.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.utils._device import DeviceContext

from anymps._paths import is_library
from anymps.source import (
    assignments,
    assignments_in,
    first_row,
    last_given,
    last_name,
    methods_of,
    own_nodes,
    parsed,
    running_nodes,
    scope_of,
    text_of,
    tree_of_frame,
)

_MAX_FRAMES = 12  # user frames looked at, outwards
_MAX_CALLERS = 100  # packages call each other through many
_WIDE = ("float64", "complex128")
_PLACED = ("device", "generator")
_MOVING = frozenset({"to", "mps", "cuda", "type_as", "copy_", "new_tensor", "tensor", "as_tensor", "asarray"})
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.ExceptHandler, ast.match_case)


@dataclass(frozen=True)
class Origin:
    """The line that made a tensor: where, under which name, and the expression on its right-hand side.

    `line` is 0 where only the name is known. `array`: the name holds an array of NumPy's. `dtype`: it holds no tensor,
    but the dtype that one was to have. `kept` says how a module keeps the tensor under that name: `buffer`,
    `parameter`, or the empty text.
    """

    file: str
    line: int
    function: str
    name: str
    expression: str
    numpy_default: bool
    array: bool = False
    dtype: bool = False
    kept: str = ""


def find_origin(culprit: torch.Tensor | None, kind: str, is_internal: Callable[[str], bool]) -> Origin | None:
    """The origin of `culprit`, or, where the refused tensor never came to be, of what the line was taking to mps.

    A tensor that is known is looked for in all frames; one that never came to be only in what the running line itself
    gives to a call that takes things to a device. `is_internal(filename)` tells frames that are not the user's. None if
    nothing proves where the tensor came from.
    """
    if culprit is None:
        frame = next(user_frames(is_internal), None)
        return _moved_origin(frame, kind, is_internal) if frame is not None and kind in _WIDE else None
    for frame in user_frames(is_internal):
        for name in _names_on_line(frame):
            found, value = resolve(name, frame)
            path = _path_to(value, lambda item: item is culprit) if found else None
            if path is not None:
                origin = _made_at(frame, name, path, is_internal)
                kept = _kept_within(value, culprit) if path else kept_as(name, frame)
                return replace(origin, kept=kept) if origin is not None else None
    return None


def kept_as(node: ast.expr, frame: FrameType) -> str:
    """`buffer` or `parameter`, as the module keeps it whose attribute this is; else the empty text."""
    found, owner = resolve(node.value, frame) if isinstance(node, ast.Attribute) else (False, None)
    if not found or not isinstance(node, ast.Attribute) or not isinstance(owner, torch.nn.Module):
        return ""
    return "buffer" if node.attr in owner._buffers else "parameter" if node.attr in owner._parameters else ""


def _kept_within(holder: Any, tensor: torch.Tensor) -> str:
    """`buffer` or `parameter`, as the module keeps it, or a module in it; the empty text for what is no module."""
    if not isinstance(holder, torch.nn.Module):
        return ""
    return "parameter" if any(tensor is parameter for parameter in holder.parameters()) else "buffer"


def _moved_origin(frame: FrameType, kind: str, is_internal: Callable[[str], bool]) -> Origin | None:
    """The origin of the wide dtype that the running line asks for by a name, else of its one value of that dtype."""
    asked = {
        ast.unparse(node): node for node in _names_on_line(frame, only=_takes_to_device) if _is_dtype(node, frame, kind)
    }
    if len(asked) == 1:  # whatever dtype the tensor has, this is the one that it was to have
        (node,) = asked.values()
        origin = _made_at(frame, node, "", is_internal)
        return replace(origin, dtype=True) if origin is not None else None
    moved: dict[int, tuple[ast.expr, str, Any]] = {}
    within: set[ast.AST] = set()  # of `batch["x"]`, which holds what `batch` holds too
    for node in _names_on_line(frame, only=_takes_to_device):
        found, value = resolve(node, frame) if node not in within else (False, None)
        path = _path_to(value, lambda item: _is_wide(item, kind)) if found else None
        if path is not None:
            moved.setdefault(id(value), (node, path, value))
            within |= set(ast.walk(node))
    if len(moved) != 1:
        return None
    ((node, path, value),) = moved.values()
    origin = _made_at(frame, node, path, is_internal)
    return replace(origin, array=not path and type(value).__module__ == "numpy") if origin is not None else None


def _takes_to_device(node: ast.AST) -> bool:
    """Of `x.to(device)`, `torch.tensor(x, device=device)` and the like."""
    if not isinstance(node, ast.Call):
        return False
    return last_name(node) in _MOVING or any(keyword.arg == "device" for keyword in node.keywords)


def _is_dtype(node: ast.expr, frame: FrameType, kind: str) -> bool:
    found, value = resolve(node, frame)
    return found and value is getattr(torch, kind)


def _is_wide(item: Any, kind: str) -> bool:
    return str(getattr(item, "dtype", "")).rpartition(".")[2] == kind and hasattr(item, "shape")


def defaults_behind(kind: str) -> dict[str, object]:
    """Which of torch's defaults in force may explain a refusal of this kind, as its details.

    The default device, for what is on the wrong one; a default dtype of float64, which MPS refuses wherever a call
    names no other.
    """
    if kind in _PLACED:
        return {"default_device": "mps"} if _default_device() == "mps" else {}
    wide = kind == "float64" and torch.get_default_dtype() is torch.float64
    return {"torch_default": True} if wide else {}


def _default_device() -> str:
    """The type of the default device of this thread, while a call runs; the empty text where none is set.

    The mode of `with torch.device("mps")` is off while it handles the call: its frame tells.
    """
    handler = DeviceContext.__torch_function__.__code__
    modes = [frame.f_locals.get("self") for frame in _outwards(sys._getframe(1)) if frame.f_code is handler]
    context = modes[-1] if modes else getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return str(context.device.type) if context is not None else ""


def find_caller(is_internal: Callable[[str], bool]) -> str | None:
    """`train.py:12`, the line of the user's that called an installed package; None where none was called."""
    for depth, frame in enumerate(user_frames(is_internal, most=_MAX_CALLERS)):
        file = frame.f_code.co_filename
        if not is_library(file):
            name = file.replace("\\", "/").rpartition("/")[2]
            return f"{name}:{frame.f_lineno}" if depth and not file.startswith("<") else None
    return None


def _path_to(value: Any, wanted: Callable[[Any], bool]) -> str | None:
    if wanted(value):
        return ""
    if isinstance(value, torch.nn.Module):
        for name, tensor in [*value.named_parameters(), *value.named_buffers()]:
            if wanted(tensor):
                return "." + name
    elif isinstance(value, dict):
        for key, item in value.items():
            if wanted(item):
                return f"[{key!r}]"
    elif isinstance(value, (list, tuple)) and len(value) <= 64:
        for index, item in enumerate(value):
            if wanted(item):
                return f"[{index}]"
    return None


def user_frames(is_internal: Callable[[str], bool], most: int = _MAX_FRAMES) -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    seen = 0
    while frame is not None and seen < most:
        if not is_internal(frame.f_code.co_filename):
            seen += 1
            yield frame
        frame = frame.f_back


def _names_on_line(frame: FrameType, only: Callable[[ast.AST], bool] | None = None) -> list[ast.expr]:
    """The names, attributes and items that the statement being run reads, the longest first; `only` within some."""
    nodes = running_nodes(frame)
    reads = [
        node
        for node in (nodes if only is None else (inner for part in nodes if only(part) for inner in ast.walk(part)))
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load)
    ]
    return sorted(reads, key=lambda node: -len(ast.unparse(node)))


def resolve(node: ast.expr, frame: FrameType) -> tuple[bool, Any]:
    """The value of a name, an attribute or an item, without running any of the user's code."""
    if isinstance(node, ast.Name):
        for scope in (frame.f_locals, frame.f_globals):
            if node.id in scope:
                return True, scope[node.id]
    elif isinstance(node, ast.Attribute):
        found, owner = resolve(node.value, frame)
        if found and not isinstance(owner, ModuleType):
            if isinstance(owner, torch.nn.Module):
                for table in (owner._parameters, owner._buffers, owner._modules):
                    if node.attr in table:
                        return True, table[node.attr]
            values = getattr(owner, "__dict__", {})
            if node.attr in values:
                return True, values[node.attr]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        found, owner = resolve(node.value, frame)
        key = node.slice.value
        if found and type(owner) in (dict, list, tuple):
            try:
                return True, owner[key]
            except (KeyError, IndexError, TypeError):
                return False, None
    return False, None


def _made_at(frame: FrameType, node: ast.expr, path: str, is_internal: Callable[[str], bool]) -> Origin | None:
    """The last assignment to the name before the failing line, in this frame or, for an argument, in a caller's."""
    tree = tree_of_frame(frame)
    if tree is None:
        return None
    scope = scope_of(tree, frame)
    if isinstance(node, ast.Name) and scope is not tree and node.id not in frame.f_locals:
        return _made_in_module(tree, frame, node.id, path)
    return (
        _made_in_scope(scope, frame, node, path)
        or _made_by_caller(frame, node, path, is_internal)
        or _made_in_owner(frame, node, path, is_internal)
        or _only_named(node, path)
    )


def _only_named(node: ast.expr, path: str) -> Origin:
    return Origin("", 0, "", ast.unparse(node) + path, "", False)


def _made_in_scope(scope: ast.AST, frame: FrameType, node: ast.expr, path: str) -> Origin | None:
    """The last assignment in a function, or in a module, before the line that it stands at; None without one.

    Where a branch holds the assignment, it may not have run: then only the name is given.
    """
    name = ast.unparse(node)
    given = last_given(scope, name, frame.f_lineno)
    if given is None:
        return None
    _, value, line = given
    if not _has_run(scope, line, frame.f_lineno):
        return _only_named(node, path)
    code, expression = frame.f_code, ast.unparse(value) if value is not None else ""
    return Origin(code.co_filename, line, code.co_name, name + path, expression, _is_numpy_default(value, frame))


def _made_by_caller(frame: FrameType, node: ast.expr, path: str, is_internal: Callable[[str], bool]) -> Origin | None:
    """Where an argument was made: under its name in a caller, else at the line of the call, `f(torch.zeros(3))`."""
    code = frame.f_code
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found, value = resolve(node, frame)
    if not (isinstance(node, ast.Name) and node.id in parameters and found):
        return None
    callers = [outer for outer in _outwards(frame.f_back) if not is_internal(outer.f_code.co_filename)]
    for outer in callers:
        for candidate in _names_on_line(outer):
            present, held = resolve(candidate, outer)
            if present and held is value:
                return _made_at(outer, candidate, path, is_internal)
    if callers and not is_library(callers[0].f_code.co_filename):
        caller = callers[0].f_code
        return Origin(caller.co_filename, callers[0].f_lineno, caller.co_name, ast.unparse(node) + path, "", False)
    return None


def _made_in_owner(frame: FrameType, node: ast.expr, path: str, is_internal: Callable[[str], bool]) -> Origin | None:
    """The one assignment to an attribute in the methods of its object's class."""
    if not isinstance(node, ast.Attribute):
        return None
    found, owner = resolve(node.value, frame)
    made = _made_in_class(type(owner), node.attr, is_internal) if found else None
    if made is None:
        return None
    file, line, function, given = made
    name = ast.unparse(node) + path
    return Origin(file, line, function, name, ast.unparse(given), _is_numpy_default(given, frame))


def _made_in_module(tree: ast.Module, frame: FrameType, name: str, path: str) -> Origin:
    """The one assignment of a call to a global name; only the name where there are several, or none."""
    given = (each for node in own_nodes(tree) for each in assignments(node))
    made = [(each.value, each.line) for each in given if each.name == name]
    written = any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(tree))
    value, line = made[0] if len(made) == 1 and not written else (None, 0)
    if value is None or not any(isinstance(part, ast.Call) for part in ast.walk(value)):
        return Origin("", 0, "", name + path, "", False)
    numpy_default = _is_numpy_default(value, frame)
    return Origin(frame.f_code.co_filename, line, "<module>", name + path, ast.unparse(value), numpy_default)


def _has_run(scope: ast.AST, made: int, line: int) -> bool:
    """Whether a line before another of the same scope has run whenever that one does: no branch holds it alone."""
    for node in ast.walk(scope):
        if not isinstance(node, _BLOCKS):
            continue
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if body:
                first, last = first_row(body[0]), body[-1].end_lineno
                if first <= made <= last and not first <= line <= last:
                    return False
    return True


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _made_in_class(
    owner: type, attribute: str, is_internal: Callable[[str], bool]
) -> tuple[str, int, str, ast.expr] | None:
    """File, line, method and expression of the one assignment to `self.attribute`; None if there are several."""
    made: list[tuple[str, int, str, ast.expr]] = []
    for base in owner.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
        tree = None if not file or is_internal(file) else parsed(text_of(file))
        for method in methods_of(tree, base.__qualname__) if tree is not None else ():
            own = f"{method.args.args[0].arg}.{attribute}" if method.args.args else ""
            found = (each for each in assignments_in(method) if each.name == own)
            made += [(file, each.line, method.name, each.value or each.target) for each in found]
    # What is no call, as in `self.scale = scale`, was made elsewhere.
    return made[0] if len(made) == 1 and any(isinstance(part, ast.Call) for part in ast.walk(made[0][3])) else None


def _is_numpy_default(value: ast.expr | None, frame: FrameType) -> bool:
    """Whether the value is a call into NumPy that names no dtype, so that NumPy's default, float64, was taken."""
    for node in ast.walk(value) if value is not None else ():
        if isinstance(node, ast.Call) and not any(keyword.arg == "dtype" for keyword in node.keywords):
            root = node.func
            while isinstance(root, (ast.Attribute, ast.Call)):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            if isinstance(root, ast.Name):
                found, owner = resolve(root, frame)
                if found and str(getattr(owner, "__name__", "")).split(".")[0] == "numpy":
                    return True
    return False
