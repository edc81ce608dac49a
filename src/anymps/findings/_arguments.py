"""MPS6xx: arguments and values that MPS refuses, at the call or at a later wait."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._refusals import Refused, at, refused_as
from anymps.record import Recording, RefusalKind

ARGUMENT = Rule(
    id="MPS601",
    title="Argument that the MPS kernel does not take",
    severity=Severity.ERROR,
    why="Some MPS kernels have fewer options, or smaller limits, than those of the CPU.",
    fix="Do this call on the CPU: `.cpu()` before it, `.to(device)` after it; or choose arguments that MPS takes.",
    source="C strings of libtorch_cpu.dylib in the macOS wheels, torch 2.11 to 2.15",
)

INDEX = Rule(
    id="MPS602",
    title="Bad index found by the device",
    severity=Severity.ERROR,
    why="MPS kernels find a bad index or value while they run; the exception comes at the next wait, at another line.",
    fix="Check the values before this call, while debugging with `torch.mps.synchronize()` right after it.",
    source="c10/metal/error.h, aten/src/ATen/mps/MPSStream.mm, torch 2.11 to 2.15",
)

DETERMINISM = Rule(
    id="MPS603",
    title="No deterministic kernel",
    severity=Severity.ERROR,
    why="`torch.use_deterministic_algorithms(True)` is on, and the MPS kernel adds in no fixed order.",
    fix="Use `torch.use_deterministic_algorithms(True, warn_only=True)`, or do this call on the CPU.",
    source="callers of alertNotDeterministic in libtorch_cpu.dylib of the macOS wheels, torch 2.11 to 2.15",
)

RULES = (ARGUMENT, INDEX, DETERMINISM)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about arguments and values that MPS refuses."""
    for kind, rule in ((RefusalKind.ARGUMENT, ARGUMENT), (RefusalKind.DETERMINISM, DETERMINISM)):
        for refused in refused_as(recording, kind):
            yield rule.finding(
                refused.site,
                what=f"`{refused.operator}` raised {refused.error}: {refused.message}",
                count=refused.count,
                related_sites=[refused.origin],
            )
    for refused in refused_as(recording, RefusalKind.INDEX):
        yield INDEX.finding(refused.site, what=_late(refused), count=refused.count, related_sites=[refused.origin])


def _late(refused: Refused) -> str:
    reported = f"`{refused.operator}` reported: {refused.message or 'an assertion without words'}"
    if refused.origin.known:
        return f"{reported}; {refused.error} was raised at {at(refused.origin)}, the next wait."
    return f"{reported}; no exception told of it: another error came first, or nothing waited."
