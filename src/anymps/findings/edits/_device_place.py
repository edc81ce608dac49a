"""Where a device is chosen in a statement: an assignment, a default, an option, an argument of that name."""

from __future__ import annotations

import ast
import re
from typing import Final

from anymps.source import Code, last_name, name_of, parameter_with, text_in

NAMES_DEVICE: Final = re.compile(r"device|^dev$", re.IGNORECASE)
"""A name that holds a device."""

_NAMES_OPTION: Final = re.compile(r"device|^dev$|gpu|accel", re.IGNORECASE)
_CHOOSING: Final = ("Generator", "GradScaler", "autocast", "device", "set_default_device", "to")
_DEVICE: Final = re.compile(r"device|map_location|accelerator", re.IGNORECASE)


def is_loose(code: Code, node: ast.expr) -> bool:
    """Whether an `if` expression can stand in the place of a node without parentheses."""
    parent = code.parents.get(node)
    if isinstance(parent, ast.IfExp):
        return node is parent.orelse
    if isinstance(parent, ast.Call):
        return node is not parent.func
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr, ast.keyword, ast.arguments, ast.withitem)):
        return True
    if isinstance(parent, (ast.Dict, ast.Tuple, ast.List)):
        return True
    start, end = code.span(node)
    text = code.text
    return text[:start].rstrip().endswith("(") and text[end:].lstrip().startswith(")")


def chooses_for(code: Code, node: ast.expr, function: str) -> bool:
    """Whether a text stands where a device is chosen: in an assignment, a default, or an argument of that name."""
    whole = _whole(code, node)
    if whole is None:
        return False
    child, parent = whole, code.parents.get(whole)
    if isinstance(parent, ast.Assign):
        return any(NAMES_DEVICE.search(name_of(target)) for target in parent.targets)
    if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)):
        return bool(NAMES_DEVICE.search(name_of(parent.target)))
    if isinstance(parent, ast.Return):
        return bool(_DEVICE.search(function))
    if isinstance(parent, ast.arguments):
        parameter = parameter_with(parent, child)
        return parameter is not None and NAMES_DEVICE.search(parameter.arg) is not None
    if isinstance(parent, ast.Dict):
        keys = [key for key, value in zip(parent.keys, parent.values, strict=True) if value is child]
        return any(isinstance(key, ast.Constant) and NAMES_DEVICE.search(str(key.value)) for key in keys)
    if isinstance(parent, ast.keyword):
        if parent.arg is not None and _DEVICE.search(parent.arg):
            return True
        call = code.parents.get(parent)
        return parent.arg == "default" and isinstance(call, ast.Call) and _is_option(code, call)
    if isinstance(parent, ast.Call) and child in parent.args:
        return last_name(parent) in _CHOOSING or _is_fallback(parent, child)
    return False


def _whole(code: Code, node: ast.expr) -> ast.AST | None:
    """What a text is a part of: of `device = "cuda" if gpu else "cpu"` and of `name, device = "run", "cuda"` all of it.

    None in a test, which compares a device and chooses none.
    """
    child: ast.AST = node
    parent = code.parents.get(child)
    while isinstance(parent, (ast.IfExp, ast.BoolOp)) or (
        isinstance(parent, (ast.Tuple, ast.List)) and isinstance(code.parents.get(parent), ast.Assign)
    ):
        if isinstance(parent, ast.IfExp) and child is parent.test:
            return None
        child, parent = parent, code.parents.get(parent)
    return child


def _is_option(code: Code, call: ast.Call) -> bool:
    """`add_argument("--device", ...)`, also `--gpu_type`, or `field(...)` of an attribute `device`."""
    parent = code.parents.get(call)
    target = name_of(parent.target) if isinstance(parent, ast.AnnAssign) else ""
    return bool(NAMES_DEVICE.search(target)) or any(
        _NAMES_OPTION.search(text_in(value).lstrip("-")) for value in call.args
    )


def _is_fallback(call: ast.Call, child: ast.AST) -> bool:
    """`os.environ.get("DEVICE", "cuda")`, `getattr(config, "device", "cuda")`."""
    before = call.args[: call.args.index(child)] if isinstance(child, ast.expr) else []
    return any(isinstance(value, ast.Constant) and NAMES_DEVICE.search(str(value.value)) for value in before)
