"""Applies all rules to a recording."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from anymps.findings._callers import with_callers
from anymps.findings._catalogue import RULES as RULES
from anymps.findings._catalogue import nearest_rule as nearest_rule
from anymps.findings._catalogue import rule_of as rule_of
from anymps.findings._family import by_id
from anymps.findings._loop import MIN_STEPS
from anymps.findings._model import Finding, Severity
from anymps.findings._prices import priced
from anymps.findings._processes import with_processes
from anymps.findings.rules import FAMILIES
from anymps.record import Recording

RULES.update(by_id(FAMILIES))


def is_refusal(finding: Finding) -> bool:
    """Whether a finding is about a call that raised."""
    return rule_of(finding).refusal and finding.severity is Severity.ERROR


def find(recording: Recording) -> list[Finding]:
    """What a recording means: its findings, the most severe first, then the costliest, then by place."""
    torch_version = recording.run.torch_version or None
    findings = [
        finding for family in FAMILIES for finding in family.find(recording) if RULES[finding.id].applies(torch_version)
    ]
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
