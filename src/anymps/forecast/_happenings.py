"""A recorded step as events: each entry is one, and the time between entries is the program's own code.

Times here are those of the recording machine, less the time in which the program's thread had no core (`_gaps.py` says
which of several steps count). A call's own time counts only if the CPU computed it.

The speed of a shared core changes within seconds. A time and a speed from different moments cannot be combined: on such
a machine the quickest step over the highest speed is sometimes off by half. So each step's times are scaled by the look
at its end (`capture/_looks.py`).
"""

from __future__ import annotations

import statistics
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import fsum
from operator import itemgetter
from statistics import median_low
from typing import Any, Final, NamedTuple

from anymps._errors import CostError
from anymps.cost import Happening, OperatorCall, read_tensor
from anymps.forecast._gaps import Seen, usual
from anymps.record import Direction, Fate, Flag, Phase, Recording, Signature, Step, Wait

_NEAR: Final = 20  # steps of which the gaps are taken
_MOST_READ: Final = 100_000  # calls of other steps that are read for their gaps: that many take a second
# Plain numbers: a step may have a hundred thousand calls, and an operation with an enumeration takes a microsecond.
_VIEW, _PAIR = int(Flag.VIEW), int(Flag.PAIR)
_BEFORE_BATCH, _BATCH, _END = -1, -2, -3  # places that are no call's
_PHASES: Final = {int(phase): phase for phase in Phase}
_Row = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""The columns of `_ENTRIES`."""
_ENTRIES: Final = (
    "SELECT step, start_ns, duration_ns, signature, site, phase, wait, direction, flags, moved_bytes, delayed_us "
    "FROM entries "
    "WHERE step IN ({steps}) ORDER BY step, start_ns, id"
)


class Speeds(NamedTuple):
    """Of a core of the recording machine, that of an M1 being 1."""

    code: float
    """At which it runs the program's own code."""
    compute: float
    """At which it computes what falls back to it."""


_SPEED_HERE: Final = 0.65
"""Of a core of the machine that a virtual device ran on, an M1's being 1, where a recording does not say. Judgement."""


def speeds_of(recording: Recording) -> Speeds:
    """Those of the machine that made the recording; one of an earlier version holds one for both."""
    if recording.run.on_mac:
        known = recording.run.known_mac
        speed = (known.cpu_speed if known is not None else None) or 1.0
        return Speeds(speed, speed)
    code = recording.run.core_speed or _SPEED_HERE
    return Speeds(code, recording.run.compute_speed or code)


class Look(NamedTuple):
    """A time in which the machine was looked at: where it begins and its length, in ns."""

    begin: int
    length: int


_NEVER: Final = Look(sys.maxsize, 0)


class Beside(NamedTuple):
    """The machine beside a step, and when it was `looked` at in it: that time is not the program's."""

    speeds: Speeds
    looked: Sequence[Look] = ()


class Looks:
    """The looks of a recording. One of an earlier version, or of a run without an optimizer, holds none."""

    def __init__(self, recorded: Sequence[Sequence[Any]], speeds: Speeds) -> None:
        """`speeds` are those of the whole run, for steps in which there is no look."""
        self._rows = recorded
        self._begins = [row[0] for row in self._rows]
        self._speeds = speeds

    def ended(self, step: Step) -> bool:
        """Whether there is a look in the step; it lies at its end."""
        return bool(self._within(step))

    def beside(self, step: Step) -> Beside:
        """By the look at the step's end, where there is one."""
        rows = self._within(step)
        if not rows:
            return Beside(self._speeds)
        speeds = Speeds(*(statistics.fmean(row[column] for row in rows) for column in (3, 4)))
        return Beside(speeds, [Look(begin, end - begin) for begin, end, *_ in rows])

    def _within(self, step: Step) -> Sequence[Sequence[Any]]:
        end = step.start_ns if step.end_ns is None else step.end_ns
        return self._rows[bisect_left(self._begins, step.start_ns) : bisect_left(self._begins, end)]


class WaitingLine(NamedTuple):
    """Where the host waits: a line and a kind of wait."""

    file: str
    line: int
    wait: Wait


@dataclass(frozen=True)
class StepWork:
    """What the typical step of a run on shapes does, with the time of the program's own code.

    `batches` is how many batches its data loaders make in it, `busy` as in `StepSeen`.
    """

    happenings: tuple[Happening, ...]
    batches: int
    busy: float = 0.0


def step_work(recording: Recording) -> StepWork | None:
    """The work of a plan's typical step; None without a complete step.

    The program's own code counts as in `forecast`; loading takes no time, and what falls back to the CPU was computed
    on shapes, so its time is predicted.

    A plan has few steps, and what a script does every so many, as a log or a validation, is in one of the first. So of
    an even number the one with fewer calls counts. Of steps with as many calls it is the one with the largest tensors:
    the last batch of an epoch may be a smaller one.
    """
    complete = [step for step in recording.steps() if step.complete]
    if not complete:
        return None
    calls, sizes = _calls_and_sizes(recording)
    later = complete[1:] or complete
    usual = median_low(calls[step.step] for step in later)
    step = max((step for step in later if calls[step.step] == usual), key=lambda alike: sizes[alike.step])
    mark = f"s.fate = {Fate.MARK:d} AND e.phase = {Phase.BATCH:d} AND NOT e.flags & {Flag.PAIR:d}"
    query = (
        f"SELECT COUNT(*) FROM entries e JOIN signatures s ON s.id = e.signature WHERE e.step = {step.step} AND {mark}"
    )
    ((batches,),) = recording.stream(query)
    seen = happenings(recording, step, speeds_of(recording))
    if len(complete) == 1:  # it has in it what came before the loop, such as imports
        seen = StepSeen([one._replace(host_code=0.0) for one in seen.happenings], 0.0)
    return StepWork(tuple(one._replace(work=None) for one in seen.happenings), batches, seen.busy)


def _calls_and_sizes(recording: Recording) -> tuple[Counter[int], Counter[int]]:
    """By step, how many calls it has, and how many bytes their tensors have."""
    calls: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    known: dict[int, int] = {}
    query = "SELECT step, signature, COUNT(*) FROM entries GROUP BY step, signature"
    for step, identity, count in recording.stream(query):
        if identity not in known:
            signature = recording.signature(identity)
            known[identity] = sum(_size(text) for text in (*signature.inputs, *signature.outputs))
        calls[step] += count
        sizes[step] += count * known[identity]
    return calls, sizes


def _size(text: str) -> int:
    """Bytes of a tensor, 0 of what is none."""
    try:
        return read_tensor(text).size
    except CostError:
        return 0


class StepSeen(NamedTuple):
    """What happens in a step, and which share of its own code's time the machine kept the program from running.

    Where that time was measured: where some step ran undisturbed, what others lost has no part in it.
    """

    happenings: list[Happening]
    busy: float


def happenings(recording: Recording, step: Step, speeds: Speeds) -> StepSeen:
    """What happens in a complete step. `speeds` are those of the recording machine."""
    looks = Looks(recording.run.looks, speeds)
    chosen = {each_step.step: each_step for each_step in (step, *_others(recording, step, speeds, looks))}
    listed = ", ".join(map(str, sorted(chosen)))
    reader = _Reader(recording)
    beside = {number: looks.beside(each_step) for number, each_step in chosen.items()}
    rows = groupby(recording.stream(_ENTRIES.format(steps=listed)), key=itemgetter(0))
    found = {number: reader.read(entries, chosen[number], beside[number]) for number, entries in rows}
    found |= {number: reader.read((), chosen[number], beside[number]) for number in chosen.keys() - found.keys()}
    taken, lost = usual(found.pop(step.step), list(found.values()))
    return StepSeen(taken, lost / (lost + _seconds_of(taken)) if lost else 0.0)


def _others(recording: Recording, step: Step, speeds: Speeds, looks: Looks) -> list[Step]:
    """The steps near one, without the run's first, whose times count too; those first that were looked at."""
    steps = [each_step for each_step in recording.steps() if each_step.complete]
    at = [each_step.step for each_step in steps].index(step.step)
    near = sorted(range(len(steps) > 1, len(steps)), key=lambda of: (not looks.ended(steps[of]), abs(of - at)))
    most = min(_NEAR, _MOST_READ * len(steps) // max(1, recording.entry_count))
    return [steps[of] for of in near[:most]]


def _seconds_of(step: Iterable[Happening]) -> float:
    """The time of own code and fallbacks."""
    return fsum(happening.host_code + (happening.work or 0.0) for happening in step if happening.kind != "batch")


class _Reader:
    """Turns entries into happenings; one for several steps, so that the same call is the same object."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._speed = self._compute = 0.0  # of the step that is read
        self._calls: dict[int, tuple[Fate, OperatorCall, int]] = {}
        self._numbers: dict[str, int] = {}  # of operators

    def read(self, entries: Iterable[_Row], step: Step, beside: Beside) -> Seen:
        """The happenings of one step."""
        self._speed, self._compute = beside.speeds
        found: list[Happening] = []
        places: list[Hashable] = []
        lost: dict[int, tuple[float, float]] = {}
        clock = step.start_ns  # all before it is accounted for
        speed = self._speed
        looked = iter((*beside.looked, _NEVER))
        look = next(looked)
        loading = nested = clock  # until when a loader makes a batch, until when a fallback runs
        loaded = 1.0  # the share of a batch's time in which the thread ran
        calls = self._calls
        # Numbers in a row, and written out where it could be called: a step may have a million calls.
        for _, start, length, identity, site, phase, wait, direction, flags, moved, delayed in entries:
            fate, call, number = calls.get(identity) or self._call(identity)
            part = _PHASES[phase]
            while start > look.begin:
                clock, look = clock + look.length, next(looked)
            gap = start - clock
            if fate is Fate.MARK:
                if phase == Phase.BATCH and length and not flags & _PAIR:
                    ran, loaded = _ran(max(gap, 0), length, delayed)
                    if delayed:
                        lost[len(found)] = self._seconds(gap) * (1.0 - ran), 0.0
                    found.append(Happening("wait", host_code=self._seconds(gap) * ran, part=part))
                    places.append(_BEFORE_BATCH)
                    clock, loading = max(clock, start), start + length
                continue
            if start < nested:
                continue
            if loading > clock:
                found += self._batch(clock, min(loading, start), loaded)
                places += [_BATCH] * (len(found) - len(places))
                clock = max(clock, min(loading, start))
                gap = start - clock
            end = start + length
            places.append(number << 32 | site)
            if gap < 0:
                gap = 0
            ran = worked = 1.0
            if delayed:
                computed = length if fate in (Fate.FALLBACK, Fate.ALWAYS_FALLBACK) else 0
                ran, worked = _ran(gap, computed, delayed)
                lost[len(places) - 1] = self._seconds(gap) * (1.0 - ran), self._computed(computed) * (1.0 - worked)
            code = gap * 1e-9 * speed * ran
            if end > clock:
                clock = end
            if fate is Fate.NATIVE and not wait and not direction:
                kind = "view" if flags & _VIEW else "kernel"
                found.append(tuple.__new__(Happening, (kind, call, code, None, moved, False, part, None)))
                continue
            place = self._place(site, wait) if wait else None
            if fate in (Fate.FALLBACK, Fate.ALWAYS_FALLBACK):
                nested = end
                work = self._computed(length) * worked
                found.append(Happening("fallback", call, code, work, moved, bool(wait), part, place))
            else:
                kept = Happening("kernel", call, code, None, moved, bool(wait), part, place)
                found.append(_as_kind(kept, fate, wait, direction, flags))
        found += self._batch(clock, loading, loaded)
        places += [_BATCH] * (len(found) - len(places))
        clock += look.length + sum(later.length for later in looked)
        end = step.start_ns if step.end_ns is None else step.end_ns
        found.append(Happening("wait", host_code=self._seconds(end - max(clock, loading)), part=Phase.OTHER))
        places.append(_END)
        return Seen(found, places, lost)

    def _place(self, site: int, wait: int) -> WaitingLine:
        known = self._recording.site(site)
        return WaitingLine(known.file, known.line, Wait(wait))

    def _batch(self, since: int, until: int, ran: float) -> Iterator[Happening]:
        if until > since:
            yield Happening("batch", work=self._seconds(until - since) * ran, part=Phase.BATCH)

    def _seconds(self, nanoseconds: int) -> float:
        """A time of this machine in seconds of an M1's core; what overlaps with something else is none."""
        return max(nanoseconds, 0) * 1e-9 * self._speed

    def _computed(self, nanoseconds: int) -> float:
        """The same for what the CPU computes."""
        return max(nanoseconds, 0) * 1e-9 * self._compute

    def _call(self, identity: int) -> tuple[Fate, OperatorCall, int]:
        known = self._calls.get(identity)
        if known is None:
            signature = self._recording.signature(identity)
            number = self._numbers.setdefault(signature.operator, len(self._numbers))
            known = self._calls[identity] = signature.fate, call_of(signature), number
        return known


def _ran(gap: int, length: int, delayed: int) -> tuple[float, float]:
    """The shares of a gap and of the call after it, in ns, in which the thread ran that in both lost so many us.

    A thread loses whole slices of milliseconds. So it lost them in the one that alone is as long; where both are, or
    neither is, in each by its length.
    """
    lost = 1000 * delayed
    if length < lost <= gap:
        return 1.0 - lost / gap, 1.0
    if gap < lost <= length:
        return 1.0, 1.0 - lost / length
    both = max(0.0, 1.0 - lost / (gap + length)) if gap + length else 1.0
    return both, both


def call_of(signature: Signature) -> OperatorCall:
    """A recorded call as the cost model takes it."""
    form = signature.form
    permuted = {"transposed", "rows", *(["channels_last"] if "convolution" in signature.operator else [])}
    strided = signature.operator == "aten::copy_" and len({*form.layout}) > 1
    return OperatorCall(
        signature.operator,
        signature.inputs,
        signature.outputs,
        axis=form.axes[0] if len(form.axes) == 1 else None,
        transposed=not permuted.isdisjoint(form.layout),
        strided=strided and not {"transposed", "channels_last"}.isdisjoint(form.layout),
    )


def _as_kind(happening: Happening, fate: Fate, wait: int, direction: int, flags: int) -> Happening:
    """The happening that a call is that computes nothing on the CPU."""
    if fate is Fate.WAIT or wait == Wait.ITEM:
        return happening._replace(kind="wait", call=None, moved=0)
    if direction in (Direction.CPU_TO_MPS, Direction.MPS_TO_CPU):
        return happening._replace(kind="copy")
    if fate in (Fate.NATIVE, Fate.COPY):
        return happening._replace(kind="view") if flags & _VIEW else happening
    return Happening("wait", None, happening.host_code, part=happening.part)  # refused: nothing came of it
