"""Code that does not expect what mps does: handlers that catch other exceptions, comparisons without an index."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import FrameType

import torch

from anymps.capture._origins import resolve, user_frames
from anymps.source import name_of, statements_around, tree_of_frame

_CUDA = "OutOfMemoryError"  # `torch.cuda.OutOfMemoryError` is `torch.OutOfMemoryError`; of mps it is a RuntimeError
_CATCHES = ("RuntimeError", "Exception", "BaseException")


def missed_handler(is_internal: Callable[[str], bool]) -> tuple[str, int, str] | None:
    """File, line and function of the innermost `except torch.cuda.OutOfMemoryError` around the running call.

    None if there is none, or if something within it catches a RuntimeError.
    """
    for frame in user_frames(is_internal):
        tree = tree_of_frame(frame)
        for handlers in _around(tree, frame.f_lineno) if tree is not None else ():
            caught = [(handler.lineno, _names(handler)) for handler in handlers]
            if any(not names or set(names) & set(_CATCHES) for _, names in caught):
                return None
            for line, names in caught:
                if _CUDA in names:
                    return frame.f_code.co_filename, line, frame.f_code.co_name
    return None


def _around(tree: ast.Module, line: int) -> Iterator[list[ast.ExceptHandler]]:
    """The handlers of each `try` whose body holds the line, the innermost first."""
    for node in reversed(statements_around(tree, line)):
        if isinstance(node, ast.Try) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or line):
            yield node.handlers


def _names(handler: ast.ExceptHandler) -> list[str]:
    """The last names of the classes that a handler catches; none for a bare `except`."""
    if handler.type is None:
        return []
    classes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [name_of(one) for one in classes]


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
