"""The predicted step in each release: with the kernels that it has, its fallbacks and its known slow paths."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Final

from anymps._errors import CostError
from anymps.cost import Happening, OperatorCall, predict_operator, read_tensor, walk_step
from anymps.findings import fault_of_mark
from anymps.forecast import Forecast, call_of, forecast
from anymps.mac import Mac
from anymps.record import Fate, Recording, Site
from anymps.upgrade._faults import met_by_size
from anymps.upgrade._subjects import Answer, Outcome, Release, Subject, first_dtype, named

_WORTH: Final = 0.01
"""The share of a predicted step below which a slow path is none, unless it may be five times as much."""

_Place = tuple[str, str, tuple[str, int]]
"""A known slow path, the operator that takes it, and the line."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a predicted step, and the ends of their 80 % interval."""

    seconds: float
    low: float
    high: float


class Steps:
    """Predicts the typical step of a recording on a Mac, release by release. The program's own code is as recorded."""

    def __init__(self, recording: Recording, mac: Mac) -> None:
        """Raises CostError where no time can be predicted."""
        self._mac = mac
        self._here: Forecast = forecast(recording, mac)
        if self._here.no_time:
            raise CostError(f"anymps: {self._here.no_time.rstrip('.')}")
        self._met = _met_calls(recording, self._here.step)

    def negligible(self, subject: Subject, answer: Answer, release: Release) -> bool:
        """Whether a slow path adds next to nothing to the step."""
        low, high = (lost / self._here.time.seconds for lost in self._lost(subject, answer, release))
        return answer.outcome is Outcome.SLOWER and low < _WORTH and high < 5 * _WORTH

    def time(self, release: Release, answers: Mapping[Subject, Answer]) -> StepTime | None:
        """The step in a release, by what becomes of the script's calls in it; None where some are refused."""
        if any(answer.outcome >= Outcome.REFUSED for answer in answers.values()):
            return None
        on_cpu = {(one.operator, one.dtype) for one, answer in answers.items() if answer.outcome is Outcome.ON_CPU}
        happenings = list(_as_in(self._here.happenings, on_cpu))
        time = walk_step(happenings, self._mac, named(release), busy=self._here.busy)
        lost = [self._lost(subject, answer, release) for subject, answer in answers.items()]
        low, high = fsum(least for least, _ in lost), fsum(most for _, most in lost)
        return StepTime(time.seconds + sqrt(low * high), time.low + low, time.high + high)

    def _lost(self, subject: Subject, answer: Answer, release: Release) -> tuple[float, float]:
        """The seconds that a slow path adds to the step, at least and at most: its factors, of the calls' own time."""
        if answer.outcome is not Outcome.SLOWER:
            return 0.0, 0.0
        seconds = 0.0
        for call in self._met.get((subject.fault, subject.operator, subject.site.file_line), ()):
            with suppress(CostError):
                seconds += predict_operator(call, self._mac, named(release)).device
        low, high = answer.factor
        return (low - 1.0) * seconds, (high - 1.0) * seconds


def _as_in(happenings: Sequence[Happening], on_cpu: Collection[tuple[str, str]]) -> Iterator[Happening]:
    """The happenings with these calls on the CPU and all others on the GPU; how long the CPU takes is predicted."""
    for happening in happenings:
        call = happening.call
        falls = call is not None and (call.operator, first_dtype(call.inputs, call.outputs)) in on_cpu
        if call is not None and happening.kind == "fallback" and not falls:
            yield happening._replace(kind="kernel", work=None, moved=0, waits=False, place=None)
        elif call is not None and happening.kind == "kernel" and falls:
            yield happening._replace(kind="fallback", moved=_bytes(call), waits=True)
        else:
            yield happening


def _bytes(call: OperatorCall) -> int:
    """Of all its tensors: a fallback copies the inputs to the CPU and the results back."""
    size = 0
    for text in (*call.inputs, *call.outputs):
        with suppress(CostError):
            size += read_tensor(text).size
    return size


def _met_calls(recording: Recording, step: int) -> dict[_Place, list[OperatorCall]]:
    """The calls of a step that meet known bugs and slow paths: by a mark before the call, or by its size."""
    found: dict[_Place, list[OperatorCall]] = {}
    ahead: dict[int, list[tuple[str, str, Site]]] = {}  # by thread: the marks whose call has not come
    by_size: dict[int, list[str]] = {}
    rows = recording.stream(f"SELECT thread, signature, site FROM entries WHERE step = {step:d} ORDER BY start_ns, id")
    for thread, identity, site in rows:
        signature = recording.signature(identity)
        if signature.fate is Fate.MARK:
            if met := fault_of_mark(recording, signature.operator):
                ahead.setdefault(thread, []).append((met[0][0].id, met[1], recording.site(site)))
            continue
        if identity not in by_size:
            by_size[identity] = [row.id for row in met_by_size(signature)]
        marked = [(fault, at) for fault, operator, at in ahead.pop(thread, ()) if operator == signature.operator]
        for fault, at in (*marked, *((fault, recording.site(site)) for fault in by_size[identity])):
            found.setdefault((fault, signature.operator, at.file_line), []).append(call_of(signature))
    return found
