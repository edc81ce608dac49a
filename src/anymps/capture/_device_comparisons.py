"""Tests by which a program raises, as the device of a tensor on mps has an index: `mps:0`."""

from __future__ import annotations

import ast
from types import FrameType

import torch

from anymps.capture._origins import resolve
from anymps.source import tree_of_frame

_NAMED = ("mps", torch.device("mps"))


def compared_without_index(frame: FrameType, line: int) -> str:
    """The part of a test that compares a tensor's device with one of mps without index, where that raised at a line."""
    tree = tree_of_frame(frame)
    for node in ast.walk(tree) if tree is not None else ():
        raised = node.body[0] if isinstance(node, ast.If) else node
        if isinstance(raised, (ast.Raise, ast.Assert)) and raised.lineno <= line <= (raised.end_lineno or line):
            test = getattr(node, "test", None)
            if test is not None:
                return next((ast.unparse(each) for each in ast.walk(test) if _is_of_devices(each, frame)), "")
    return ""


def _is_of_devices(node: ast.AST, frame: FrameType) -> bool:
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        return False
    sides = (node.left, node.comparators[0])
    of_tensor = any(isinstance(side, ast.Attribute) and side.attr == "device" for side in sides)
    return of_tensor and any(_is_without_index(side, frame) for side in sides)


def _is_without_index(node: ast.expr, frame: FrameType) -> bool:
    if isinstance(node, ast.Call) and len(node.args) == 1 and ast.unparse(node.func).endswith("device"):
        node = node.args[0]
    value = node.value if isinstance(node, ast.Constant) else resolve(node, frame)[1]
    return isinstance(value, (str, torch.device)) and value in _NAMED
