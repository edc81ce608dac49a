"""Applies all rules to a recording."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from itertools import accumulate
from typing import Final

from anymps import _paths
from anymps.findings._catalogue import RULES as RULES
from anymps.findings._catalogue import by_id
from anymps.findings._catalogue import nearest_rule as nearest_rule
from anymps.findings._loop import MIN_STEPS, package_of
from anymps.findings._model import Finding, Severity
from anymps.findings._prices import priced
from anymps.findings.rules import FAMILIES
from anymps.record import LinesByProcess, Recording

RULES.update(by_id(FAMILIES))


def is_refusal(finding: Finding) -> bool:
    """Whether a finding is about a call that raised."""
    return finding.rule.refusal and finding.severity is Severity.ERROR


def find(recording: Recording) -> list[Finding]:
    """What a recording means: its findings, the most severe first, then the costliest, then by place."""
    torch_version = recording.run.torch_version or None
    findings = [finding for family in FAMILIES for finding in getattr(family, "find", lambda _: ())(recording)]
    for family in FAMILIES:
        findings += getattr(family, "find_after", lambda *_: ())(recording, tuple(findings))
    findings = [finding for finding in findings if finding.rule.applies(torch_version)]
    found = with_processes(recording, priced(recording, with_callers(recording, findings)))
    return sorted(found, key=lambda finding: finding.order)


_LOOPS: Final = (
    "The script trains in {} loops, one after the other. The step table is that of all steps together, and the Mac's "
    "times in it are those of a step of loop {}; `--steps {}` shows the first loop by itself."
)


def _examples() -> list[str]:
    """The first rule about waits of a loop, and the first about its copies."""
    loops = [rule for rule in RULES.values() if rule.needs_steps]
    return [next(rule.id for rule in loops if rule.about_waits), next(rule.id for rule in loops if rule.about_copies)]


def notes(recording: Recording) -> list[str]:
    """What could not be judged from this recording, and what is needed for it; one sentence each."""
    steps = recording.training_steps
    if steps >= MIN_STEPS:
        by_loop = recording.lines_by_loop.steps
        ends = list(accumulate(by_loop[number] for number in sorted(by_loop)))
        typical = recording.typical_step()
        if len(ends) < 2 or typical is None:
            return []
        before = sum(step.complete and step.step < typical.step for step in recording.steps())
        return [_LOOPS.format(len(ends), bisect_right(ends, before) + 1, ends[0])]
    examples = _examples()[: 1 if recording.complete_steps >= MIN_STEPS else 2]  # copies count in other rounds, too
    return [
        f"The rules about the training loop (such as {' and '.join(examples)}) were not applied: they need "
        f"{MIN_STEPS} complete training steps, and the recording has {steps or 'none'}. A training step ends with "
        "`optimizer.step()`, or is a round with a `backward()`."
    ]


def with_callers(recording: Recording, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those about a package's own line with what to do about the call that led there, where known."""
    own = set(recording.run.suite.own) if recording.run.suite is not None else set()
    return [_with_caller(finding, own) for finding in findings]


def _with_caller(finding: Finding, own: Set[str]) -> Finding:
    rule, caller = finding.rule, finding.caller
    changed = finding.change.file if finding.change is not None else finding.site.file
    if not caller or caller in finding.fix or _paths.package_of(changed) in ("", *own):
        return finding
    # What a machine would write is a change of the package.
    fix = f"The line is in the package {package_of(finding.site)}: change the call at {caller}. {rule.fix}"
    return replace(finding, fix=fix, edit=None)


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
    """The kind of event that a finding is about: the same line may run in each process, and wait in one."""
    rule = finding.rule
    if rule.refusal:
        return lines.refused
    return lines.waited if rule.about_waits else lines.called
