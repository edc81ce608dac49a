"""The gate of all code that a fix shows in place of the user's: shown only if it stands where the old code stood.

It must parse, its names must exist there, and it must mean the same on every device. What does not pass is said in
words instead.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

_LONGEST = 90
_ONE_DEVICE = ("cuda", "mps", "xpu")
_BUILTINS = frozenset(dir(builtins))


def checked(new: str, *, instead_of: str, known: Iterable[str] = ()) -> str:
    """`new` if it may be written instead of the user's code, or beside it; else the empty text.

    Its names are those of the code that it replaces, Python's own, and `known` ones. `**options` in a call may hold
    what `new` gives it by name, which would be given twice.
    """
    old_tree, tree = parsed(instead_of), parsed(new)
    if tree is None or old_tree is None or len(new) > _LONGEST:
        return ""
    if not names_of(tree) <= names_of(old_tree) | _BUILTINS | set(known):
        return ""
    if _one_device(tree) - _one_device(old_tree):
        return ""
    return "" if _given_by_name(tree) - _given_by_name(old_tree) and _unpacks(tree) else new


def parsed(code: str) -> ast.Module | None:
    """A line of code as a tree, also the first line of a block; None for a part of a statement."""
    code = code.strip()
    for whole in (code, f"{code.removeprefix('el')} pass" if code.endswith(":") else ""):
        try:
            tree = ast.parse(whole)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return tree if len(tree.body) == 1 else None
    return None


def names_of(tree: ast.AST) -> set[str]:
    """All names in code, without attributes."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _one_device(tree: ast.AST) -> set[str]:
    """Devices that are written as text, which not every machine has."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in texts if text.partition(":")[0] in _ONE_DEVICE}


def _given_by_name(tree: ast.AST) -> set[str]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {keyword.arg for call in calls for keyword in call.keywords if keyword.arg is not None}


def _unpacks(tree: ast.AST) -> bool:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(keyword.arg is None for call in calls for keyword in call.keywords)
