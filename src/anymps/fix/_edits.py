"""Which edit a finding asks for: a change of the call at its line, or the new line that its advice shows."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anymps._errors import UsageError
from anymps.findings import Finding, replacement
from anymps.fix._calls import CHANGES, pinned_by_device
from anymps.fix._main_guard import guarded_line, with_guard
from anymps.fix._program import Program
from anymps.fix._script import Script
from anymps.record import Site

_DEVICE = 'device = torch.device(torch.accelerator.current_accelerator(True) or "cpu")'


_GUARDED, _PINNED, _ASKS_CUDA = "MPS802", "MPS801", "MPS409"


@dataclass(frozen=True)
class Edit:
    """A change of one line of a file for one finding."""

    finding: Finding
    file: Path
    line: int
    ported: bool = False
    """Whether the script asks for CUDA and is made portable."""

    @property
    def label(self) -> str:
        """`MPS812 at train.py:12`."""
        return f"{self.finding.id} at {self.file.name}:{self.line}"

    def apply(self, script: Script) -> Script | None:
        """The script with this edit; None where nothing fits the line."""
        if self.finding.id == _GUARDED:
            return with_guard(script)
        change = pinned_by_device if self.ported and self.finding.id == _PINNED else CHANGES.get(self.finding.id)
        changed = script.with_calls(self.line, change) if change is not None else None
        return changed or _advised(self, script)


@dataclass(frozen=True)
class Suggestion:
    """A finding that is not fixed, and why."""

    finding: Finding
    why: str


def edits_for(findings: Iterable[Finding], program: Program) -> tuple[list[Edit], list[Suggestion]]:
    """The edits for findings in a program, in each file from its last line to its first, and what stays a suggestion.

    A line is edited for one finding only: what else is told of it can be fixed afterwards.
    """
    edits: dict[tuple[Path, int], Edit] = {}
    suggestions = []
    findings = list(findings)
    ported = any(finding.id == _ASKS_CUDA for finding in findings)
    for finding in findings:
        fitting, why = _guarding(finding, program) if finding.id == _GUARDED else _fitting(finding, program, ported)
        if fitting is None:
            suggestions.append(Suggestion(finding, why))
        elif (place := (fitting.file, fitting.line)) in edits:
            other = edits[place].finding.id
            suggestions.append(Suggestion(finding, f"its line is changed for {other}: run anymps fix again afterwards"))
        else:
            edits[place] = fitting
    return [edits[place] for place in sorted(edits, reverse=True)], suggestions


def _guarding(finding: Finding, program: Program) -> tuple[Edit | None, str]:
    """The end of the script is put under the guard, wherever its workers are started."""
    line = guarded_line(program.script(program.main.path))
    if line is None:
        return None, "the script has a guard, or nothing after its last import, function and class"
    return Edit(finding, program.main.path.resolve(), line), ""


def _fitting(finding: Finding, program: Program, ported: bool) -> tuple[Edit | None, str]:
    """The first of a finding's lines that can be changed; else why none of them can."""
    why = "its line is in no file of the project"
    for site in dict.fromkeys((*_first(finding), finding.site, *finding.related_sites)):
        if not program.owns(site):
            continue
        edit = Edit(finding, Path(site.file).resolve(), site.line, ported)
        try:
            if edit.apply(program.script(edit.file)) is not None:
                return edit, ""
            why = "no change of its line is known"
        except UsageError as error:
            why = str(error)
    return None, why


def apply_all(edits: Iterable[Edit], program: Program) -> Program:
    """The program with edits that are in the order of `edits_for`; `device` is made where they use it."""
    by_file: dict[Path, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.file, []).append(edit)
    for file, own in by_file.items():
        script = changed = program.script(file)
        for edit in own:
            changed = edit.apply(changed) or changed
        if changed is not script and _uses_device(changed, script) and not changed.has_global("device"):
            changed = changed.with_line_below_imports(_DEVICE) or changed
        program = program.having(changed)
    return program


def _uses_device(changed: Script, script: Script) -> bool:
    return _count_device(changed) > _count_device(script)


def _count_device(script: Script) -> int:
    return sum(isinstance(node, ast.Name) and node.id == "device" for node in ast.walk(ast.parse(script.text)))


def _first(finding: Finding) -> tuple[Site, ...]:
    """Float64 is mended where the tensor is made, if that is known."""
    return finding.related_sites if finding.id == "MPS301" else ()


def _advised(edit: Edit, script: Script) -> Script | None:
    """The script with the code that the finding shows for its line."""
    site = edit.finding.site
    if edit.line != site.line or edit.file != Path(site.file).resolve():
        return None
    found = replacement(edit.finding.fix, script.line(edit.line))
    return None if found is None else script.with_line(edit.line, found.old, found.new)
