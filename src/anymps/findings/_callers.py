"""Refusals within an installed package: the line of the user's that called it is the one to change.

A package that the project of a suite of tests makes is the user's own, also where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from anymps import _paths
from anymps.findings._catalogue import rule_of
from anymps.findings._loop import is_library, package_of
from anymps.findings._model import Finding
from anymps.record import Recording


def with_callers(recording: Recording, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those about a package's own line with the call that led there, where the recording has it."""
    callers: dict[tuple[str, int], str] = {}
    own = set(recording.run.suite.own) if recording.run.suite is not None else set()
    for refusal in recording.refusals():
        caller = refusal.detail.get("caller")
        if isinstance(caller, str) and caller and is_library(refusal.site):
            callers.setdefault(refusal.site.file_line, caller)
    return [_with_caller(finding, callers.get(finding.site.file_line, ""), own) for finding in findings]


def _with_caller(finding: Finding, caller: str, own: Set[str]) -> Finding:
    rule = rule_of(finding)
    if not caller or not rule.refusal:
        return finding
    finding = replace(finding, caller=caller)
    changed = finding.change.file if finding.change is not None else finding.site.file
    if caller in finding.fix or _paths.package_of(changed) in ("", *own):
        return finding
    # What a machine would write is a change of the package.
    fix = f"The line is in the package {package_of(finding.site)}: change the call at {caller}. {rule.fix}"
    return replace(finding, fix=fix, edit=None, change=None)
