"""Handlers of exceptions around a refused call that are meant for it, and do not catch what mps raises."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from anymps.capture._origins import user_frames
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
