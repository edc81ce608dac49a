"""MPS105 to MPS107: arguments and values that MPS refuses, at the call or at a later wait."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._catalogue import read_rules
from anymps.findings._model import Finding, at
from anymps.findings._refusals import Refused, refused_as, told_as_raised
from anymps.record import Recording, RefusalKind

_RULES = read_rules(__file__, "arguments.toml")
ARGUMENT = _RULES["MPS105"]
INDEX = _RULES["MPS106"]
DETERMINISM = _RULES["MPS107"]


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about arguments and values that MPS refuses."""
    yield from told_as_raised(recording, RefusalKind.ARGUMENT, ARGUMENT)
    yield from told_as_raised(recording, RefusalKind.DETERMINISM, DETERMINISM)
    for refused in refused_as(recording, RefusalKind.INDEX):
        yield INDEX.finding(refused.site, what=_late(refused), count=refused.count, related_sites=[refused.origin])


def _late(refused: Refused) -> str:
    reported = f"`{refused.operator}` reported: {refused.message or 'an assertion without a message'}"
    if refused.origin.known:
        return f"{reported}; {refused.error} was raised at {at(refused.origin)}, the next wait."
    return f"{reported}; no exception was raised for it: another error came first, or nothing waited."
