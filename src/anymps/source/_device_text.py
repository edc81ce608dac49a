"""How code names a device: `"cuda"` as text, mps, a comparison with either, and the names that one is given to."""

from __future__ import annotations

import ast
import re
from typing import Final

from anymps.source._nodes import last_name, text_in

CUDA: Final = re.compile(r"cuda(:\d+)?")
_MPS: Final = re.compile(r"mps(:0)?")


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
