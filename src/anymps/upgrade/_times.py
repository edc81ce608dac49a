"""The predicted step in each release: with the kernels that it has, its fallbacks and its known slow paths."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import fsum

from anymps._errors import CostError
from anymps.cost import Happening, OperatorCall, predict_operator, read_tensor, walk_step
from anymps.findings import fault_of_mark
from anymps.forecast import call_of, forecast
from anymps.mac import Mac
from anymps.record import Fate, Recording
from anymps.upgrade._subjects import Answer, Outcome, Release, Subject


@dataclass(frozen=True)
class StepTime:
    """Seconds of a predicted step, and the ends of their 80 % interval."""

    seconds: float
    low: float
    high: float


def step_times(
    recording: Recording, mac: Mac, answers: Mapping[Release, Mapping[Subject, Answer]]
) -> dict[Release, StepTime]:
    """By release, from what becomes of the script's calls in it; none of a release that refuses some.

    The program's own code is that of the recording. Raises CostError where no time can be predicted.
    """
    here = forecast(recording, mac)
    if here.no_time:
        raise CostError(f"anymps: {here.no_time.rstrip('.')}")
    slow = _slow_calls(recording, here.step) if _any_slow(answers) else {}
    found = {}
    for release, of in answers.items():
        if any(answer.outcome >= Outcome.REFUSED for answer in of.values()):
            continue
        torch = f"{release[0]}.{release[1]}"
        on_cpu = {(one.operator, one.dtype) for one, answer in of.items() if answer.outcome is Outcome.ON_CPU}
        time = walk_step(list(_as_in(here.happenings, on_cpu)), mac, torch, busy=here.busy)
        longer = 1.0 + _lost(slow, of, mac, torch) / time.seconds
        found[release] = StepTime(time.seconds * longer, time.low * longer, time.high * longer)
    return found


def _as_in(happenings: Sequence[Happening], on_cpu: Collection[tuple[str, str]]) -> Iterator[Happening]:
    """The happenings with these calls on the CPU and all others on the GPU; how long the CPU takes is predicted."""
    for happening in happenings:
        call = happening.call
        falls = call is not None and (call.operator, _dtype(call)) in on_cpu
        if call is not None and happening.kind == "fallback" and not falls:
            yield happening._replace(kind="kernel", work=None, moved=0, waits=False, place=None)
        elif call is not None and happening.kind == "kernel" and falls:
            yield happening._replace(kind="fallback", moved=_bytes(call), waits=True)
        else:
            yield happening


def _dtype(call: OperatorCall) -> str:
    tensors = (*call.inputs, *call.outputs)
    return tensors[0].partition("[")[0] if tensors else ""


def _bytes(call: OperatorCall) -> int:
    """Of all its tensors: a fallback copies the inputs to the CPU and the results back."""
    size = 0
    for text in (*call.inputs, *call.outputs):
        with suppress(CostError):
            size += read_tensor(text).size
    return size


def _any_slow(answers: Mapping[Release, Mapping[Subject, Answer]]) -> bool:
    return any(answer.factor > 1 for of in answers.values() for answer in of.values())


def _lost(
    slow: Mapping[tuple[str, str], list[OperatorCall]], of: Mapping[Subject, Answer], mac: Mac, torch: str
) -> float:
    """The seconds by which the known slow paths lengthen a step: as their factors have it, of the calls' own time."""
    factors: dict[tuple[str, str], float] = {}
    for one, answer in of.items():
        key = one.fault, one.operator
        factors[key] = max(factors.get(key, 1.0), answer.factor)
    lost = []
    for key, calls in slow.items():
        for call in calls:
            with suppress(CostError):
                lost.append((factors.get(key, 1.0) - 1.0) * predict_operator(call, mac, torch).device)
    return fsum(lost)


def _slow_calls(recording: Recording, step: int) -> dict[tuple[str, str], list[OperatorCall]]:
    """The calls of a step that meet known bugs and slow paths, by id and operator: a mark lies before each."""
    found: dict[tuple[str, str], list[OperatorCall]] = {}
    ahead: dict[int, list[tuple[str, str]]] = {}  # by thread: the marks whose call has not come
    rows = recording.stream(f"SELECT thread, signature FROM entries WHERE step = {step:d} ORDER BY start_ns, id")
    for thread, identity in rows:
        signature = recording.signature(identity)
        met = fault_of_mark(signature.operator)
        if met is not None:
            ahead.setdefault(thread, []).append(met)
        elif signature.fate is not Fate.MARK:
            for fault, operator in ahead.pop(thread, ()):
                if operator == signature.operator:
                    found.setdefault((fault, operator), []).append(call_of(signature))
    return found
