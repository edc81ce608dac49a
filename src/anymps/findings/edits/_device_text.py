"""How code names a device: `"cuda"` as text, mps, a comparison with either, and the names that one is given to."""

from __future__ import annotations

import ast
import re
from typing import Final

from anymps.findings.edits._code import last_name

_CUDA: Final = re.compile(r"cuda(:\d+)?")
_MPS: Final = re.compile(r"mps(:0)?")


def is_device_text(node: ast.AST) -> bool:
    """`"cuda"`, `"cuda:1"`, `f"cuda:{n}"`, `"cuda:%d" % n`, `"cuda:" + n`, `"cuda:{}".format(n)`."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _CUDA.fullmatch(node.value) is not None
    if isinstance(node, ast.JoinedStr):
        return bool(node.values) and _begins(node.values[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        return _begins(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _begins(node.func.value)
    return False


def _begins(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda:")


def mentions_mps(node: ast.AST) -> bool:
    """`"mps"`, `torch.backends.mps`."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _MPS.fullmatch(node.value) is not None
    return isinstance(node, ast.Attribute) and node.attr == "mps"


def compares_device(node: ast.AST) -> bool:
    """Whether a device is compared with CUDA by name."""
    for part in ast.walk(node):
        if isinstance(part, ast.Compare):
            if any(is_device_text(inner) for side in (part.left, *part.comparators) for inner in ast.walk(side)):
                return True
        elif isinstance(part, ast.Call) and last_name(part) in ("startswith", "endswith", "find", "count"):
            words = [argument.value for argument in part.args if isinstance(argument, ast.Constant)]
            if any(isinstance(word, str) and "cuda" in word for word in words):
                return True
    return False


def name_of(target: ast.AST) -> str:
    """What a target of an assignment is called: `args.device` and `config["device"]` are `device`."""
    if isinstance(target, ast.Subscript):
        return str(target.slice.value) if isinstance(target.slice, ast.Constant) else ""
    if isinstance(target, (ast.Tuple, ast.List)):
        return " ".join(map(name_of, target.elts))
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
