"""In which processes of a joined recording a finding was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anymps.findings._catalogue import rule_of
from anymps.findings._model import Finding
from anymps.record import LinesByProcess, Recording


def with_processes(recording: Recording, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each with the processes in which it was seen, where these are not all that did anything on mps."""
    found = list(findings)
    if len(recording.parts) < 2 or not found:
        return found
    lines = recording.lines_by_process
    if not lines.whole:  # calls without detail are of no process
        return found
    names = [part.name for part in recording.parts]
    return [_with_processes(finding, _seen(finding, lines), lines, names) for finding in found]


def _with_processes(finding: Finding, seen: list[int], lines: LinesByProcess, names: list[str]) -> Finding:
    """A step is one of theirs: the ranks that do nothing here make no mean."""
    if not seen:
        return finding
    per_step = lines.per_step_there(finding.per_step, seen)
    return replace(finding, processes=tuple(names[number] for number in seen), per_step=per_step)


def _seen(finding: Finding, lines: LinesByProcess) -> list[int]:
    """The numbers of these processes; none if they are all, or if nothing tells them."""
    also = finding.related_sites if finding.related_as == "also at" else ()
    evidence = _evidence(finding, lines)
    places = [site.file_line for site in (finding.site, *also) if site.known]
    seen = frozenset().union(*(evidence.get(place, frozenset()) for place in places))
    return sorted(seen) if seen < lines.working else []


def _evidence(finding: Finding, lines: LinesByProcess) -> Mapping[tuple[str, int], frozenset[int]]:
    """What of a line's doings a finding is about: the same line may run in each process and wait in one."""
    rule = rule_of(finding)
    if rule.refusal:
        return lines.refused
    return lines.waited if rule.about_waits else lines.called
