"""The code that runs in a frame: the nodes of its running statement, and the function that holds it."""

from __future__ import annotations

import ast
from types import FrameType

from anymps.source._files import parsed, text_of
from anymps.source._statements import FUNCTIONS, first_row, statements_around


def tree_of_frame(frame: FrameType) -> ast.Module | None:
    """The tree of a frame's file; None where that is no Python that can be read."""
    return parsed(text_of(frame.f_code.co_filename))


def running_nodes(frame: FrameType) -> list[ast.AST]:
    """The nodes of the statement that runs, of a block those of its head; none where its source is not known."""
    tree = tree_of_frame(frame)
    around = statements_around(tree, frame.f_lineno) if tree is not None else []
    parts: list[ast.AST] = list(around[-1:])
    if around and hasattr(around[-1], "body"):
        parts = [child for child in ast.iter_child_nodes(around[-1]) if not isinstance(child, ast.stmt)]
    return [node for part in parts for node in ast.walk(part)]


def scope_of(tree: ast.Module, frame: FrameType) -> ast.AST:
    """The function that a frame runs; the whole tree where it is none, or not known."""
    code = frame.f_code
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name == code.co_name and first_row(node) == code.co_firstlineno:
            return node
    return tree
