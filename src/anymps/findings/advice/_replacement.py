"""The new code that an advice shows, in the place of the old: a statement of its kind, or a call of that function."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from anymps.findings.advice._new_line import names_of
from anymps.findings.advice._user_line import without_comment

_SHOWN = re.compile(r"(\b[Ww]rite )?`([^`]+)`")


class Replacement(NamedTuple):
    """Code of one line, and what to write instead. `is_whole`: it needs no name that the line does not have."""

    old: str
    new: str
    is_whole: bool


def replacement(fix: str, line: str) -> Replacement | None:
    """What an advice says to write in a line; None where it shows nothing that stands for what is there."""
    statement = without_comment(line)
    old = _tree(statement)
    if old is None:
        return None
    for written, code in _SHOWN.findall(fix):
        new = _tree(code)
        if new is None or "..." in code or code == statement:
            continue
        is_whole = names_of(new) <= names_of(old) | {"torch"}
        if _same_kind(old, new):
            return Replacement(statement, code, is_whole)
        if written and isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
            for call in ast.walk(old):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == ast.unparse(new.value.func):
                    text = ast.get_source_segment(_whole(statement), call)
                    return Replacement(text, code, is_whole) if text else None
    return None


def _whole(code: str) -> str:
    return f"{code.removeprefix('el')} pass" if code.endswith(":") else code


def _tree(code: str) -> ast.stmt | None:
    try:
        body = ast.parse(_whole(code)).body
    except (SyntaxError, ValueError):
        return None
    return body[0] if len(body) == 1 else None


def _same_kind(old: ast.stmt, new: ast.stmt) -> bool:
    """Whether one statement may stand for the other: they are alike, and give the same names their values."""
    if type(old) is not type(new):
        return False
    if isinstance(old, ast.Expr) and isinstance(new, ast.Expr):
        return _target(old.value) == _target(new.value) and type(old.value) is type(new.value)
    return _given(old) == _given(new)


def _target(value: ast.expr) -> str:
    """What an expression is about: `losses.append` of `losses.append(loss.item())`, `model` of `model.cuda()`."""
    while isinstance(value, (ast.Call, ast.Attribute)):
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return value.func.id
        value = value.func if isinstance(value, ast.Call) else value.value
    return ast.unparse(value)


def _given(statement: ast.stmt) -> list[str]:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return [ast.unparse(target) for target in targets if target is not None]
