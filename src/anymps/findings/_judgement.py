"""The verdict on a run: whether it would run on that Mac. All report formats use it.

It goes by how the run ended and by its findings, so a finding that stops a script on macOS and "would run" cannot stand
on one page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from anymps.findings._endings import Ending, ending, ending_refusal, kernel_limit
from anymps.findings._model import Finding, Severity
from anymps.findings.rules import asked_for_cuda, ended_by_sharing, rule_of_ending
from anymps.record import NOWHERE, Recording, RefusalKind, Site


class Outcome(Enum):
    """What became of a run, seen from the Mac."""

    RUNS = "runs"
    """To its end, maybe with refused calls that the script caught."""
    WRONG = "wrong"
    """To its end, but with other results than it should have."""
    RAISES = "raises"
    """`site` raises `ending.exception` on that Mac, where the CPU would not."""
    NO_CUDA = "no cuda"
    """`site` asks for CUDA and raises."""
    STOPS = "stops"
    """`finding` stops it on a Mac, whatever it did here."""
    FAILED = "failed"
    """An exception that tells nothing about mps ended the run."""
    CUT = "cut"
    """The run ended early: `ending.early`."""
    UNUSED = "unused"
    """Nothing reached mps."""


@dataclass(frozen=True)
class Judgement:
    """What became of a run, where, and by which finding; `refused` calls raised on the way."""

    outcome: Outcome
    ending: Ending
    site: Site = NOWHERE
    finding: Finding | None = None
    refused: int = 0

    @property
    def stops(self) -> bool:
        """Whether the run ends early on a Mac, so that no time is shown."""
        return self.outcome in (Outcome.RAISES, Outcome.STOPS, Outcome.NO_CUDA)


def unused(recording: Recording) -> bool:
    """Whether nothing reached mps in the whole run."""
    return not recording.operators() and not recording.refusals() and recording.memory_story.peak is None


def how_it_ended(recording: Recording) -> Judgement:
    """What became of a run, by its recording alone."""
    ended, refused = ending(recording), len(recording.refusals())
    refusal, cuda = ending_refusal(recording), asked_for_cuda(recording)
    if refusal is not None:
        site = refusal.origin if refusal.kind is RefusalKind.INDEX else refusal.site
        return Judgement(Outcome.RAISES, ended, site, refused=refused)
    if cuda is not None:
        return Judgement(Outcome.NO_CUDA, ended, cuda.occurrence.site, refused=refused)
    if rule_of_ending(recording) is not None or kernel_limit(ended.message) or ended_by_sharing(recording):
        return Judgement(Outcome.RAISES, ended, ended.site, refused=refused)
    if ended.exception:
        return Judgement(Outcome.FAILED, ended, ended.site, refused=refused)
    if ended.early:
        return Judgement(Outcome.CUT, ended, refused=refused)
    if unused(recording):
        return Judgement(Outcome.UNUSED, ended)
    return Judgement(Outcome.RUNS, ended, refused=refused)


def judge(end: Judgement, findings: Sequence[Finding]) -> Judgement:
    """What became of a run with the findings that are shown with it."""
    # What ended the run comes before what a finding says of it, and both before what is wrong at its end.
    if end.outcome in (Outcome.RAISES, Outcome.NO_CUDA):
        return end
    stopping = _first(finding for finding in findings if finding.rule.stops)
    if stopping is not None:
        return replace(end, outcome=Outcome.STOPS, site=stopping.site, finding=stopping)
    wrong = _first(finding for finding in findings if finding.rule.wrong)
    if wrong is not None and end.outcome is Outcome.RUNS:
        return replace(end, outcome=Outcome.WRONG, site=wrong.site, finding=wrong)
    return end


def _first(findings: Iterable[Finding]) -> Finding | None:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return min(errors, key=lambda finding: finding.order, default=None)
