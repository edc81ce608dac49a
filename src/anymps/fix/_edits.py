"""Which edit a finding asks for: a change of the call at its line, or the new line that its advice shows."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from anymps.findings import Finding, replacement
from anymps.fix._calls import CHANGES
from anymps.fix._script import Script
from anymps.record import Site

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
    """The script with the code that the finding shows for its line."""
    found = replacement(finding.fix, script.line(line)) if line == finding.site.line else None
    return None if found is None else script.with_line(line, found.old, found.new)
