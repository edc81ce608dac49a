"""All rules, and the one way to apply them."""

from __future__ import annotations

from typing import Final

from anymps.findings import (
    _arguments,
    _changing_sizes,
    _compiling,
    _copies,
    _cpu_only,
    _detours,
    _dtypes,
    _hazards,
    _indices,
    _loading,
    _memory,
    _memory_growth,
    _operators,
    _optimizer,
    _placement,
    _precision,
    _processes,
    _suppressions,
    _timing,
    _wait_loops,
    _waits,
    _whole_run,
    _wrong_results,
)
from anymps.findings._catalogue import RULES
from anymps.findings._loop import MIN_STEPS
from anymps.findings._model import Finding, Severity
from anymps.record import Recording

_FAMILIES: Final = (
    _suppressions,
    _whole_run,
    _operators,
    _arguments,
    _cpu_only,
    _changing_sizes,
    _waits,
    _wait_loops,
    _dtypes,
    _placement,
    _detours,
    _indices,
    _memory,
    _memory_growth,
    _hazards,
    _wrong_results,
    _copies,
    _precision,
    _loading,
    _processes,
    _optimizer,
    _compiling,
    _timing,
)

RULES.update({rule.id: rule for family in _FAMILIES for rule in family.RULES})

_OVER_STEPS: Final = (
    _precision.UNSCALED.id,
    _detours.BORN.id,
    _detours.DRAWN.id,
    _detours.CONSTANT.id,
    *(rule.id for rule in (*_waits.RULES, *_memory_growth.RULES, *_optimizer.RULES)),
)


_REFUSALS: Final = frozenset(
    rule.id
    for family in (_operators, _arguments, _dtypes, _placement, _memory)
    for rule in family.RULES
    if rule.severity is Severity.ERROR
)


def is_refusal(finding: Finding) -> bool:
    """Whether a finding is about a call that raised."""
    return finding.id in _REFUSALS and finding.severity is Severity.ERROR


def find(recording: Recording) -> list[Finding]:
    """What a recording means: its findings, the most severe first, then the costliest, then by place."""
    version = recording.meta.get("torch_version")
    torch_version = version if isinstance(version, str) else None
    findings = [
        finding
        for family in _FAMILIES
        for finding in family.find(recording)
        if RULES[finding.id].applies(torch_version)
    ]
    return sorted(findings, key=lambda finding: finding.order)


def unjudged(recording: Recording) -> dict[str, str]:
    """The rules that could not be applied to this recording, by id, and what they need instead."""
    steps = recording.training_steps
    if steps >= MIN_STEPS:
        return {}
    reason = (
        f"needs {MIN_STEPS} complete training steps, the recording holds {steps or 'none'}; a training step ends with "
        "`optimizer.step()`, or is a round with a `backward()`"
    )
    return {rule: reason for rule in RULES if rule in _OVER_STEPS}


def notes(recording: Recording) -> list[str]:
    """What could not be judged from this recording, and what is needed for it; one sentence each."""
    steps = recording.training_steps
    if steps >= MIN_STEPS:
        return []
    return [
        f"The rules about the training loop (such as MPS201 and MPS404) were not applied: they need {MIN_STEPS} "
        f"complete training steps, the recording holds {steps or 'none'}. A training step ends with "
        "`optimizer.step()`, or is a round with a `backward()`."
    ]
