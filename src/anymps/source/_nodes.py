"""What single nodes of a syntax tree say: names, texts, the arguments of a call, and how they name a device."""

from __future__ import annotations

import ast
import re
from typing import Final

CUDA: Final = re.compile(r"cuda(:\d+)?")
_MPS: Final = re.compile(r"mps(:0)?")


def last_name(call: ast.Call) -> str:
    """`AdamW` of `torch.optim.AdamW(...)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def name_of(target: ast.AST | None) -> str:
    """What a target of an assignment is called: `args.device` and `config["device"]` are `device`."""
    if isinstance(target, ast.Subscript):
        return str(target.slice.value) if isinstance(target.slice, ast.Constant) else ""
    if isinstance(target, (ast.Tuple, ast.List)):
        return " ".join(map(name_of, target.elts))
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def names_in(*nodes: ast.AST) -> frozenset[str]:
    """All names in some nodes, without attributes."""
    return frozenset(each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))


def names_given(*nodes: ast.AST) -> frozenset[str]:
    """The names to which some nodes give a value."""
    inner = (each for node in nodes for each in ast.walk(node))
    return frozenset(each.id for each in inner if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))


def contains(value: ast.AST, name: str) -> bool:
    """Whether a name, an attribute or an item is a part of an expression."""
    return any(isinstance(node, ast.expr) and ast.unparse(node) == name for node in ast.walk(value))


def text_in(node: ast.AST | None) -> str:
    """The text of a constant; the empty one of anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def argument(call: ast.Call, name: str, order: tuple[str, ...] = ()) -> ast.expr | None:
    """What is given by a name, or at its place; nothing where what `*rows` holds may be it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    place = order.index(name) if name in order else len(call.args)
    if place < len(call.args) and not any(isinstance(value, ast.Starred) for value in call.args):
        return call.args[place]
    return None


def unpacks(call: ast.Call) -> bool:
    """Whether `**options` may hold more than the call shows."""
    return any(keyword.arg is None for keyword in call.keywords)


def names_argument(call: ast.Call, *names: str) -> bool:
    """Whether a call gives an argument by one of these names, or may: it unpacks `**options`."""
    return unpacks(call) or any(keyword.arg in names for keyword in call.keywords)


def parameter_with(arguments: ast.arguments, default: ast.AST) -> ast.arg | None:
    """The parameter that has a default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next((name for name, value in pairs if value is default), None)


def choices_of(option: ast.Call) -> ast.expr | None:
    """The list of the values that an option takes: `choices=[...]`, and `type=click.Choice([...])`."""
    given, kind = argument(option, "choices"), argument(option, "type")
    if given is None and isinstance(kind, ast.Call) and last_name(kind) == "Choice" and kind.args:
        given = kind.args[0]
    return given


def elements(listed: ast.AST | None) -> list[ast.expr]:
    """What stands in a list, a tuple or a set; nothing for any other code."""
    return listed.elts if isinstance(listed, (ast.List, ast.Tuple, ast.Set)) else []


def is_device_text(node: ast.AST) -> bool:
    """`"cuda"`, `"cuda:1"`, `f"cuda:{n}"`, `"cuda:%d" % n`, `"cuda:" + n`, `"cuda:{}".format(n)`."""
    if isinstance(node, ast.Constant):
        return CUDA.fullmatch(text_in(node)) is not None
    if isinstance(node, ast.JoinedStr):
        return bool(node.values) and _begins(node.values[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        return _begins(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _begins(node.func.value)
    return False


def _begins(node: ast.AST) -> bool:
    return text_in(node).startswith("cuda:")


def mentions_mps(node: ast.AST) -> bool:
    """`"mps"`, `torch.backends.mps`."""
    return _MPS.fullmatch(text_in(node)) is not None or (isinstance(node, ast.Attribute) and node.attr == "mps")


def compares_device(node: ast.AST) -> bool:
    """Whether a device is compared with CUDA by name."""
    for part in ast.walk(node):
        if isinstance(part, ast.Compare):
            if any(is_device_text(inner) for side in (part.left, *part.comparators) for inner in ast.walk(side)):
                return True
        elif isinstance(part, ast.Call) and last_name(part) in ("startswith", "endswith", "find", "count"):
            words = " ".join(map(text_in, part.args))
            if "cuda" in words:
                return True
    return False
