"""Collects the edits that the findings of a program ask for, and applies them to its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anymps._errors import UsageError
from anymps._text import listed
from anymps.findings import Finding
from anymps.findings.edits import Safety, chosen_by_name
from anymps.fix._program import Program
from anymps.fix._script import Script
from anymps.record import Site
from anymps.source import Edit as How
from anymps.source import Guard, Insert, rows

_CHANGED: Final = "its line is changed for {}: run anymps fix again afterwards"


@dataclass(frozen=True)
class Edit:
    """A change of one line of a file for one finding, by the edit `how`."""

    finding: Finding
    file: Path
    line: int
    how: How


@dataclass(frozen=True)
class Suggestion:
    """A finding that is not fixed, and why."""

    finding: Finding
    why: str


def edits_for(
    findings: Iterable[Finding], program: Program, loaded: Iterable[str] = ()
) -> tuple[list[Edit], list[Suggestion]]:
    """The edits for findings in a program, in each file from its last line to its first, and all others as suggestions.

    A line is edited for one finding only: its other findings can be fixed in the next round. `loaded` are files of
    modules that a run of the program imported.
    """
    edits: dict[tuple[Path, int], Edit] = {}
    suggestions = []
    findings = list(findings)
    elsewhere = list(_project_edits(findings, program, loaded))
    chosen = [change.finding for change in elsewhere if _chooses_device(change, program)]
    for finding in findings:
        fitting, why = _fitting(finding, program)
        takes = "cuda" not in finding.site.source.lower()  # a device, and asks for none itself
        choices = [f"{Path(other.site.file).name}:{other.site.line}" for other in chosen if other.id == finding.id]
        if fitting is None:
            taken = takes and bool(choices)
            suggestions.append(Suggestion(finding, f"its device is chosen at {listed(choices)}" if taken else why))
        elif (earlier := edits.setdefault((fitting.file, fitting.line), fitting)) is not fitting:
            suggestions.append(Suggestion(finding, _CHANGED.format(earlier.finding.id)))
    for edit in elsewhere:
        earlier = edits.setdefault((edit.file, edit.line), edit)
        if earlier.finding.id != edit.finding.id:
            suggestions.append(Suggestion(edit.finding, _CHANGED.format(earlier.finding.id)))
    return [edits[place] for place in sorted(edits, reverse=True)], suggestions


def _chooses_device(edit: Edit, program: Program) -> bool:
    place = program.script(edit.file).place(edit.line)
    rewritten = chosen_by_name(place) if place is not None else None
    return rewritten is not None and any("mps" in splice.text for splice in rewritten.splices)


def _project_edits(findings: Sequence[Finding], program: Program, loaded: Iterable[str]) -> Iterator[Edit]:
    """Edits of the whole program that one of the findings asks for: of all that asks for CUDA in the script and in the
    modules that it imported, and of each device that is named as CUDA's in another file of the project that a finding
    is about. Other scripts of the folder are none of its business.
    """
    asking = next((finding for finding in findings if finding.rule.project is not None), None)
    if asking is None:
        return
    rule = asking.rule
    named, asked = rule.project, rule.edit if asking.edit is None else asking.edit.edit
    modules = program.files(loaded)
    came = {Path(where.file).resolve() for each in findings for where in (each.site, *each.related_sites)}
    beside = sorted(file for file in came if program.owns(Site(str(file), 1)))
    for file in dict.fromkeys((*modules, *beside)):
        try:
            script = program.script(file)
        except UsageError:
            continue
        how = asked if file in modules else named
        recorded = dict(enumerate(rows(script.text), 1))
        for line, text in recorded.items():
            place = script.place(line) if how is not None and "cuda" in text else None
            if place is None or how is None or place.line != line or script.start_of(how, line) is None:
                continue
            site = Site(
                str(file),
                line,
                place.function,
                text.strip(),
                first=line,
                around=text,
                recorded=recorded,
            )
            found = rule.finding(site, what="This line asks for CUDA.", count=0, edit=how, safety=Safety.SAFE)
            yield Edit(found, file, line, how)


def _fitting(finding: Finding, program: Program) -> tuple[Edit | None, str]:
    """The first of a finding's lines that can be changed; otherwise the reason why none can."""
    placed = finding.edit
    why = "its line is not in a file of the project" if finding.site.known else "it is about no single line"
    if placed is not None and isinstance(placed.edit, Guard):
        script = program.script(program.main.path)
        line = script.start_of(placed.edit, finding.site.line)
        if line is None:
            return None, "the script has a guard, or nothing after its last import, function and class"
        return Edit(finding, program.main.path.resolve(), line, placed.edit), ""
    advice = placed is None or placed.safety is Safety.ADVICE
    for site in (finding.site,) if placed is None else placed.sites:
        if not program.owns(site):
            continue
        file = Path(site.file).resolve()
        try:
            script = program.script(file)
        except UsageError as error:
            why = str(error)
            continue
        if placed is not None and not advice and script.start_of(placed.edit, site.line) is not None:
            return Edit(finding, file, site.line, placed.edit), ""
        why = "no safe edit of this line is known"
    return None, why


def apply_all(edits: Iterable[Edit], program: Program) -> Program:
    """The program with edits that are in the order of `edits_for`, and with what they need below the imports."""
    by_file: dict[Path, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.file, []).append(edit)
    for file, own in by_file.items():
        program = program.having(_applied(own, program.script(file)))
    return program


def _applied(edits: Iterable[Edit], script: Script) -> Script:
    inserts: list[Insert] = []
    changed, first = script, len(script.text)
    for edit in edits:
        made = changed.edited(edit.how, edit.line)
        if made is not None:
            changed, needed = made
            inserts += needed
            first = min(first, edit.line) if needed else first
    return changed.with_inserts(tuple(inserts), first) or script
