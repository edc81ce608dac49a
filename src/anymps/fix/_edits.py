"""Which edit a finding asks for: a change of the call at its line, or the new line that its advice shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from anymps.findings import Finding, without_comment
from anymps.fix._calls import CHANGES
from anymps.fix._script import Script
from anymps.record import Site

_SHOWN = re.compile(r"(\b[Ww]rite )?`([^`]+)`")
_DEVICE = 'device = torch.device(torch.accelerator.current_accelerator(True) or "cpu")'


@dataclass(frozen=True)
class Edit:
    """A change of one line for one finding."""

    finding: Finding
    line: int

    @property
    def label(self) -> str:
        """`MPS812 at line 12`."""
        return f"{self.finding.id} at line {self.line}"

    def apply(self, script: Script) -> Script | None:
        """The script with this edit; None where nothing fits the line."""
        change = CHANGES.get(self.finding.id)
        changed = script.with_calls(self.line, change) if change is not None else None
        return changed or _advised(self.finding, self.line, script)


@dataclass(frozen=True)
class Suggestion:
    """A finding that is not fixed, and why."""

    finding: Finding
    why: str


def edits_for(findings: Iterable[Finding], script: Script) -> tuple[list[Edit], list[Suggestion]]:
    """The edits for findings in a script, from its last line to its first, and what stays a suggestion.

    A line is edited for one finding only: what else is told of it can be fixed afterwards.
    """
    edits: dict[int, Edit] = {}
    suggestions = []
    for finding in findings:
        places = [
            site.line for site in (*_first(finding), finding.site, *finding.related_sites) if _is_in(site, script)
        ]
        tried = [Edit(finding, line) for line in dict.fromkeys(places)]
        fitting = next((it for it in tried if it.apply(script) is not None), None)
        if not places:
            suggestions.append(Suggestion(finding, "its line is not in the script"))
        elif fitting is None:
            suggestions.append(Suggestion(finding, "no change of its line is known"))
        elif fitting.line in edits:
            other = edits[fitting.line].finding.id
            suggestions.append(Suggestion(finding, f"its line is changed for {other}: run anymps fix again afterwards"))
        else:
            edits[fitting.line] = fitting
    return [edits[line] for line in sorted(edits, reverse=True)], suggestions


def apply_all(edits: Iterable[Edit], script: Script) -> Script:
    """The script with edits that are in the order of `edits_for`; `device` is made where they use it."""
    changed = script
    for edit in edits:
        changed = edit.apply(changed) or changed
    if changed is not script and _uses_device(changed, script) and not changed.has_global("device"):
        changed = changed.with_line_below_imports(_DEVICE) or changed
    return changed


def _uses_device(changed: Script, script: Script) -> bool:
    return _count_device(changed) > _count_device(script)


def _count_device(script: Script) -> int:
    return sum(isinstance(node, ast.Name) and node.id == "device" for node in ast.walk(ast.parse(script.text)))


def _first(finding: Finding) -> tuple[Site, ...]:
    """Float64 is mended where the tensor is made, if that is known."""
    return finding.related_sites if finding.id == "MPS301" else ()


def _is_in(site: Site, script: Script) -> bool:
    try:
        return site.known and script.path.samefile(site.file)
    except OSError:
        return False


def _advised(finding: Finding, line: int, script: Script) -> Script | None:
    """The script with the code that the finding shows, in place of the statement or the call that it stands for."""
    statement = without_comment(script.line(line))
    old = _tree(statement)
    if old is None or line != finding.site.line:
        return None
    for written, code in _SHOWN.findall(finding.fix):
        new = _tree(code)
        if new is None or "..." in code or code == statement:
            continue
        if _same_kind(old, new):
            return script.with_line(line, statement, code)
        if written and isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
            for call in ast.walk(old):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == ast.unparse(new.value.func):
                    text = ast.get_source_segment(_whole(statement), call)
                    return script.with_line(line, text, code) if text else None
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
