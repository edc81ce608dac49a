"""MPS6xx: calls that a Mac is known to compute wrong, to abort on or to refuse. The virtual device computes them right.

The device recognises such a call by its own torch, macOS and GPU, and leaves a mark on the tape; see
`rules/faults/_model.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._loop import by_line, times, uses_mps
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._release import known_fault
from anymps.record import Occurrence, Recording
from anymps.rules.faults import Check, Hazard, Outcome, all_hazards

MARK: Final = "anymps::hazard."
"""Marks read `anymps::hazard.MPS611 aten::mm`."""

_UNSURE: Final = (Outcome.MAY_BE_WRONG, Outcome.VARIES, Outcome.OPEN, Outcome.MAY_ABORT, Outcome.MAY_HANG)
_WHY: Final = {
    Outcome.WRONG: "A known bug in the backend. The values here are right. On a Mac they are wrong, without an error.",
    Outcome.MAY_BE_WRONG: "A known bug in the backend. The values here are right. On a Mac they may be wrong.",
    Outcome.VARIES: "The values are the same in every run here. On a Mac the last digits vary.",
    Outcome.OPEN: (
        "Metal leaves the result unspecified: no error, and any number. Here it is the result of dividing by one; a "
        "Mac may give another."
    ),
    Outcome.ABORTS: "A known bug in the backend: the process dies, and there is no exception to catch.",
    Outcome.MAY_ABORT: "A known bug in the backend: the process can die, and there is no exception to catch.",
    Outcome.HANGS: "A known bug in the backend: the call never returns.",
    Outcome.MAY_HANG: "A known bug in the backend: the call may never return.",
    Outcome.RAISES: "A limit of the backend.",
}


def _rule(hazards: list[Hazard]) -> Rule:
    first = hazards[0]
    issues = ", ".join(f"#{number}" for number in first.issues)
    where = dict.fromkeys(hazard.where for hazard in hazards)
    sources = dict.fromkeys(hazard.source for hazard in hazards)
    return Rule(
        id=first.id,
        title=first.title,
        severity=Severity.WARNING if first.outcome in _UNSURE else Severity.ERROR,
        why=_WHY[first.outcome],
        fix=first.fix,
        source="; ".join([*([f"pytorch issue {issues}"] if issues else []), *sources, *where]),
        example=None,
        where="; ".join(where),
        stops=first.outcome is Outcome.HANGS,
        wrong=True,
    )


_HAZARDS: Final = {hazard.id: hazard for hazard in reversed(all_hazards())}
RULES = tuple(_rule([hazard for hazard in all_hazards() if hazard.id == identity]) for identity in sorted(_HAZARDS))
_RULE_OF: Final = {rule.id: rule for rule in RULES}


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about known faults of the backend."""
    for line in by_line(recording.hazards(), split_operators=True):
        identity, _, call = line.operators[0].removeprefix(MARK).partition(" ")
        if identity not in _RULE_OF:
            continue  # of another anymps
        hazard = _HAZARDS[identity]
        later = " The tensor was read again later." if hazard.check is Check.NARROWING_COPY else ""
        yield _RULE_OF[identity].finding(
            line.site,
            what=f"`{call}` was called {times(line.count)} in a way that {_verb(hazard)}: {hazard.what}.{later}",
            count=line.count,
            per_step=line.per_step,
        )
    yield from _compiled(recording)
    for thread in _threads(recording):
        hazard = next(hazard for hazard in all_hazards() if hazard.check is Check.THREADS)
        yield _RULE_OF[hazard.id].finding(
            thread.site,
            what=(
                f"`{thread.operator}` ran {times(thread.count)} while another thread was in an operator: {hazard.what}."
            ),
            count=thread.count,
            per_step=thread.per_step,
        )


def _verb(hazard: Hazard) -> str:
    """`MPS computes incorrectly` and the like."""
    return {
        Outcome.WRONG: "MPS computes incorrectly",
        Outcome.MAY_BE_WRONG: "MPS can compute incorrectly",
        Outcome.VARIES: "MPS computes differently from run to run",
        Outcome.OPEN: "gives an unspecified number on MPS",
        Outcome.ABORTS: "ends the process on a Mac",
        Outcome.MAY_ABORT: "can end the process on a Mac",
        Outcome.HANGS: "never returns on a Mac",
        Outcome.MAY_HANG: "can hang on a Mac",
        Outcome.RAISES: "MPS refuses",
    }[hazard.outcome]


def _compiled(recording: Recording) -> Iterator[Finding]:
    """Modules with a LayerNorm that were compiled for mps, if the recording's torch is known to compile it wrong."""
    hazard = known_fault(recording, Check.COMPILED_LAYER_NORM)
    for compiled in recording.noted("compile") if hazard is not None else ():
        site, facts = compiled.occurrence.site, compiled.facts
        if hazard and facts.get("backend") == "inductor" and facts.get("layer_norm") and uses_mps(recording):
            yield _RULE_OF[hazard.id].finding(
                site,
                what=f"A module with an nn.LayerNorm was compiled in a way that {_verb(hazard)}: {hazard.what}.",
                count=compiled.occurrence.count,
            )


def _threads(recording: Recording) -> tuple[Occurrence, ...]:
    """Operators of several threads at the same time, if the recording's torch is known to mind."""
    return recording.concurrent() if known_fault(recording, Check.THREADS) is not None else ()
