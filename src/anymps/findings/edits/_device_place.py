"""Where a device is chosen in a statement: an assignment, a default, an option, an argument of that name."""

from __future__ import annotations

import ast
import re
from typing import Final

from anymps.source import (
    CUDA,
    Code,
    LineEdit,
    Place,
    Rewritten,
    Splice,
    compares_device,
    is_device_text,
    last_name,
    mentions_mps,
    name_of,
    parameter_with,
    text_in,
)

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
    there = ast.dump(ast.Attribute(node.value, "device", ast.Load()))
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


def _with_mps(place: Place) -> Rewritten | None:
    """`"mps" if "mps" in device else` before such a choice; the rest stays word for word."""
    code = place.code
    for node in code.nodes:
        if (
            isinstance(node, ast.IfExp)
            and isinstance(node.orelse, ast.Constant)
            and node.orelse.value == "cpu"
            and isinstance(node.body, ast.Constant)
            and is_device_text(node.body)
            and compares_device(node.test)
            and not any(map(_asks_otherwise, ast.walk(node.test)))
            and not any(mentions_mps(part) for part in code.nodes)
        ):
            start = code.span(node)[0]
            body, test = (CUDA.sub("mps", code.source(part)) for part in (node.body, node.test))
            return Rewritten((Splice(start, start, f"{body} if {test} else "),))
    return None


def _asks_otherwise(part: ast.AST) -> bool:
    """Whether a part of a test would mean something else with mps in its place: `torch.cuda`, `not`, `!=`."""
    return isinstance(part, (ast.Not, ast.NotIn, ast.NotEq)) or (
        isinstance(part, ast.Attribute) and part.attr == "cuda"
    )


TYPE_WITH_MPS: Final = LineEdit(_with_mps)
"""mps before CUDA where the type of a device is told by its name."""
