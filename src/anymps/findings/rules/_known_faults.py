"""MPS6xx: calls that a Mac is known to compute wrong, to abort on or to refuse. MPS86x to MPS88x: slow ones.

The virtual device computes them right on the CPU. PyTorch's own kernels compute them as wrong as a Mac does, where they
compute the call (`--kernels real`); so a finding says whose values the run had. The device recognises such a call by
its own torch (of an operator that another release's kernels compute, by that release), macOS and GPU, and leaves a mark
on the tape; see `rules/faults/_model.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum
from typing import Final, NamedTuple

from anymps._text import base_name, duration_range, kernels_of, percent
from anymps._vocabulary import Fate, Flag
from anymps.findings._loop import AtLine, by_line, times, uses_mps
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._prices import interval_ns, over_run, step_on_mac
from anymps.findings._release import known_fault, release_in, release_of
from anymps.record import Occurrence, Phase, Recording
from anymps.record.format import Picked
from anymps.rules.faults import (
    COMPILED_LAYER_NORM,
    ELSEWHERE,
    NARROWING_COPY,
    THREADS,
    Effect,
    Hazard,
    all_hazards,
    sources_of,
)

MARK: Final = "anymps::hazard."
"""Marks read `anymps::hazard.MPS611 aten::mm`."""

_UNSURE: Final = (Effect.MAY_BE_WRONG, Effect.VARIES, Effect.OPEN, Effect.MAY_ABORT, Effect.MAY_HANG)
_WHY: Final = {
    Effect.WRONG: "A known bug in the backend. The values are wrong, without an error.",
    Effect.MAY_BE_WRONG: "A known bug in the backend. The values may be wrong, without an error.",
    Effect.VARIES: "The last digits vary from run to run.",
    Effect.OPEN: "Metal leaves the result unspecified: no error, and any number.",
    Effect.ABORTS: "A known bug in the backend: the process crashes, without a Python exception.",
    Effect.MAY_ABORT: "A known bug in the backend: the process can crash, without a Python exception.",
    Effect.HANGS: "A known bug in the backend: the call never returns.",
    Effect.MAY_HANG: "A known bug in the backend: the call may never return.",
    Effect.RAISES: "MPS rejects the call with an exception.",
    Effect.SLOW: "The values are right. The call takes {times} as long as another way to the same result.",
}
_WORTH: Final = 0.01
"""The share of a predicted step from which on a slow path is worth a word, and a multiple of it for a warning."""
_WARNED: Final = 5 * _WORTH


_BY_THE_CPU: Final = {
    Effect.WRONG: "A known bug in the backend. The values here are right. On a Mac they are wrong, without an error.",
    Effect.MAY_BE_WRONG: "A known bug in the backend. The values here are right. On a Mac they may be wrong.",
    Effect.VARIES: "The values are the same in every run here. On a Mac the last digits vary.",
    Effect.OPEN: (
        "Metal leaves the result unspecified: no error, and any number. Here it is the result of dividing by one; a "
        "Mac may give another."
    ),
}
_BY_KERNELS: Final = {
    Effect.WRONG: "A known bug in the backend. On a Mac the values are wrong, without an error. Here they can be, "
    "too: {kernels} computed `{operator}`.",
    Effect.MAY_BE_WRONG: "A known bug in the backend. On a Mac the values may be wrong. Here they may be, too: "
    "{kernels} computed `{operator}`.",
    Effect.VARIES: "On a Mac the last digits vary from run to run. Here they may, too: {kernels} computed "
    "`{operator}`.",
}


_OF_A_BACKWARD: Final = (
    "If autograd makes this call, in the backward of the line, use a release without the bug, or compute the line and "
    "its gradients on the CPU."
)


def _why(recording: Recording, hazard: Hazard, operator: str) -> str:
    """What the fault does to this run's values, by what computed them: a Mac, PyTorch's own kernels or the CPU."""
    if recording.run.on_mac or hazard.is_slow:
        return _said(hazard)
    if _by_faulty_kernels(recording, hazard, operator) and hazard.effect in _BY_KERNELS:
        kernels = kernels_of(recording.run.kernels_torch, recording.run.torch_version)
        return _BY_KERNELS[hazard.effect].format(kernels=kernels, operator=operator)
    return _BY_THE_CPU.get(hazard.effect, _WHY[hazard.effect])


def _said(hazard: Hazard) -> str:
    return _WHY[hazard.effect].format(times=hazard.times)


def _by_faulty_kernels(recording: Recording, hazard: Hazard, operator: str) -> bool:
    """Whether PyTorch's own kernels computed calls of the operator, and their release has the fault."""
    if operator not in map(base_name, recording.run.real_calls or ()):
        return False
    release = release_in(recording.run.kernels_torch) or release_of(recording)
    return release is None or any(
        one.since <= release <= one.until for one in all_hazards() if one.id == hazard.id and _is_of(one, operator)
    )


def _is_of(hazard: Hazard, operator: str) -> bool:
    return not hazard.operators or any(base_name(f"::{name}") == operator for name in hazard.operators)


def _rule(hazards: list[Hazard]) -> Rule:
    first = hazards[0]
    where = dict.fromkeys(hazard.where for hazard in hazards)
    return Rule(
        id=first.id,
        title=first.title,
        severity=_severity(first),
        why=f"{first.what[0].upper()}{first.what[1:]}. {_said(first)}",
        fix=first.fix,
        source="; ".join([*sources_of(hazards), *where]),
        example=None,
        stops=first.effect is Effect.HANGS,
        wrong=not first.is_slow,
    )


def _severity(hazard: Hazard) -> Severity:
    if hazard.is_slow:
        return Severity.INFO
    return Severity.WARNING if hazard.effect in _UNSURE else Severity.ERROR


_HAZARDS: Final = {hazard.id: hazard for hazard in reversed(all_hazards())}
RULES = tuple(_rule([hazard for hazard in all_hazards() if hazard.id == identity]) for identity in sorted(_HAZARDS))
_RULE_OF: Final = {rule.id: rule for rule in RULES}


def fault_of_mark(recording: Recording, name: str) -> tuple[tuple[Hazard, ...], str] | None:
    """The rows of the known bug that a mark is about, and the operator; None for another mark, and for no row."""
    if not name.startswith(MARK):
        return None
    identity, _, call = name.removeprefix(MARK).removeprefix(ELSEWHERE).partition(" ")
    identity, _, since = identity.partition("@")
    release = release_of(recording)
    rows = tuple(
        row
        for row in all_hazards()
        if row.id == identity
        and _is_of(row, base_name(call))
        and ("{}.{}".format(*row.since) == since if since else release is None or row.since <= release <= row.until)
    )
    return (rows, call) if rows else None


def faults_met(recording: Recording) -> Iterator[tuple[tuple[Hazard, ...], str, Occurrence]]:
    """The rows of a known bug of any release, macOS or GPU, the operator, and the calls at a line that meet it."""
    for met in recording.hazards_anywhere():
        if fault := fault_of_mark(recording, met.operator):
            yield (*fault, met)
    for hazard in all_hazards():
        if hazard.check == COMPILED_LAYER_NORM:
            yield from (((hazard,), "torch.compile", compiled) for compiled in _compiled_norms(recording))
        elif hazard.check == THREADS:
            yield from (((hazard,), thread.operator, thread) for thread in _threads(recording))


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about known bugs of the backend."""
    for line in by_line(recording.hazards(), split_operators=True):
        identity, _, call = line.operators[0].removeprefix(MARK).partition(" ")
        if identity not in _RULE_OF:
            continue  # of another anymps
        hazard = _HAZARDS[identity]
        price = _price(recording, line, hazard, base_name(call)) if hazard.is_slow else _UNPRICED
        if price is None:
            continue
        later = " The tensor was read again later." if hazard.check == NARROWING_COPY else ""
        by_autograd = not hazard.is_slow and line.phases == (Phase.BACKWARD,) and not call.endswith("_backward")
        yield line.finding(
            _RULE_OF[identity],
            why=_why(recording, hazard, base_name(call)),
            what=f"`{call}` was called {times(line.count)} in a way that {_verb(hazard)}: {hazard.what}.{later}"
            f"{price.said}",
            fix=f"{hazard.fix} {_OF_A_BACKWARD}" if by_autograd else "",
            cost_ns=price.cost_ns,
            severity=price.severity,
        )
    yield from _compiled(recording)
    minds = known_fault(recording, THREADS)
    for thread in _threads(recording) if minds else ():
        assert minds is not None
        yield _RULE_OF[minds.id].finding(
            thread.site,
            why=_WHY[minds.effect],
            what=(
                f"`{thread.operator}` ran {times(thread.count)} while another thread was in an operator: {minds.what}."
            ),
            count=thread.count,
            per_step=thread.per_step,
        )


class _Price(NamedTuple):
    """What a finding says that a slow path costs, in words and over the run, and how serious that makes it."""

    said: str = ""
    cost_ns: tuple[float, float] = (0, 0)
    severity: Severity | None = None


_UNPRICED: Final = _Price()


def _price(recording: Recording, line: AtLine, hazard: Hazard, operator: str) -> _Price | None:
    """What a slow path costs the predicted step; None where that is nothing.

    Its calls take the mean time of the operator's calls in the step, and the path adds its factor of that.
    """
    step = step_on_mac(recording) if line.per_step else None
    calls = {
        place
        for place, happening in enumerate(step.happenings if step else ())
        if happening.call is not None and base_name(happening.call.operator) == operator
    }
    if step is None or not calls:
        return _UNPRICED
    spans = (busy.end - busy.start for busy in step.time.device_track if busy.happening in calls)
    seconds = fsum(spans) / len(calls) * line.per_step
    low, high = (seconds * (factor - 1.0) for factor in hazard.factor)
    share = low / (step.time.seconds + low)
    if share < _WORTH and high / (step.time.seconds + high) < _WARNED:
        return None
    cost = interval_ns(step, low)[0], interval_ns(step, high)[1]
    least, most = over_run(line, cost)
    return _Price(
        f" That adds {duration_range(*cost)} of GPU time to a step, at least {percent(share)} of it.",
        (round(least), round(most)),
        Severity.WARNING if share >= _WARNED else Severity.INFO,
    )


def _verb(hazard: Hazard) -> str:
    """`MPS computes incorrectly` and the like."""
    return {
        Effect.WRONG: "MPS computes incorrectly",
        Effect.MAY_BE_WRONG: "MPS can compute incorrectly",
        Effect.VARIES: "MPS computes differently from run to run",
        Effect.OPEN: "gives an unspecified number on MPS",
        Effect.ABORTS: "ends the process on a Mac",
        Effect.MAY_ABORT: "can end the process on a Mac",
        Effect.HANGS: "never returns on a Mac",
        Effect.MAY_HANG: "can hang on a Mac",
        Effect.RAISES: "MPS refuses",
        Effect.SLOW: "takes a slow path on MPS",
    }[hazard.effect]


_COMPILED: Final = "A known bug in the backend. On a Mac the values may be wrong."
"""Of compiled code: the virtual device runs Inductor's kernel, whose values nobody has compared with a Mac's."""


def _compiled(recording: Recording) -> Iterator[Finding]:
    """Modules with a LayerNorm that were compiled for mps, if the recording's torch is known to compile it wrong."""
    hazard = known_fault(recording, COMPILED_LAYER_NORM)
    for compiled in _compiled_norms(recording) if hazard else ():
        assert hazard is not None
        yield _RULE_OF[hazard.id].finding(
            compiled.site,
            why=_COMPILED,
            what=f"A module with an nn.LayerNorm was compiled in a way that {_verb(hazard)}: {hazard.what}.",
            count=compiled.count,
        )


def _compiled_norms(recording: Recording) -> Iterator[Occurrence]:
    for compiled in recording.noted("compile"):
        facts = compiled.facts
        if facts.get("backend") == "inductor" and facts.get("layer_norm") and uses_mps(recording):
            yield compiled.occurrence


_OF_THE_PROGRAM: Final = (
    f"NOT flags & {Flag.AUTOGRAD_THREAD:d} AND signature NOT IN (SELECT id FROM signatures WHERE fate = {Fate.MARK:d})"
)
"""Of an entry: neither of a thread of autograd nor a mark of our own."""

_CONCURRENT: Final = Picked(
    condition="e.id IN (SELECT id FROM (SELECT id, thread, start_ns, LAG(thread) OVER time AS before, "
    f"LAG(start_ns + duration_ns) OVER time AS until FROM entries WHERE {_OF_THE_PROGRAM} "
    "WINDOW time AS (ORDER BY start_ns)) WHERE thread <> before AND start_ns < until)"
)


def _threads(recording: Recording) -> tuple[Occurrence, ...]:
    """Operators that began while another thread was inside one."""
    several = len(list(recording.stream(f"SELECT DISTINCT thread FROM entries WHERE {_OF_THE_PROGRAM}"))) > 1
    return recording.occurrences(_CONCURRENT) if several else ()
