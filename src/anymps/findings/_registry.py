"""All rules, and the one way to apply them."""

from __future__ import annotations

from typing import Final

from anymps.findings import _arguments, _dtypes, _memory, _operators, _placement, _waits
from anymps.findings._loop import MIN_STEPS
from anymps.findings._model import Finding, Rule
from anymps.record import Recording

_FAMILIES: Final = (_operators, _waits, _dtypes, _placement, _memory, _arguments)

RULES: Final[dict[str, Rule]] = {rule.id: rule for family in _FAMILIES for rule in family.RULES}
"""Every rule by its id."""


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
    return sorted(findings, key=lambda it: (it.severity, -it.cost_ns[1], it.id, it.site.file, it.site.line, it.what))


def notes(recording: Recording) -> list[str]:
    """What could not be judged from this recording, and what is needed for it; one sentence each."""
    steps = recording.complete_steps
    if steps >= MIN_STEPS:
        return []
    return [
        f"The rules about the training loop (MPS102, MPS2xx) were not applied: they need {MIN_STEPS} complete steps, "
        f"the recording holds {steps or 'none'}. A step ends with `optimizer.step()`."
    ]
