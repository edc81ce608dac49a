"""The time of a step on a Mac: its events, in the order of the program, advance two clocks.

kernel    the host dispatches it; the device starts when it is free and the kernel is there
wait      the host goes on when the device is done
copy      between CPU and mps: a blit and the bytes, on the host's clock; most wait
fallback  the host waits, copies, computes and copies back, while the device has nothing to do
batch     the data loader makes a batch on the host
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import fsum
from operator import eq
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from anymps._errors import CostError
from anymps.cost._by_release import Layouts
from anymps.cost._clocks import Busy, Move, StepBound, Stretch, seconds_without, stretches, tracks, walk_through
from anymps.cost._coefficients import Coefficients, TorchRelease
from anymps.cost._kernel import rates
from anymps.cost._predict import (
    CALL,
    TRANSFER,
    OperatorTime,
    dispatch_seconds,
    graphs_of,
    operator_time,
    runs_own_kernel,
    step_interval,
    transfer_seconds,
    wait_seconds,
    widened,
    works_of,
)
from anymps.cost._tensors import OperatorCall
from anymps.mac import Mac

_LEAST_COVERED: Final = 0.9
"""Of a step's calls: with fewer predicted ones there is no time."""

HappeningKind = Literal["kernel", "view", "copy", "wait", "fallback", "batch"]

# A fallback's CPU where its time was not seen: half the bandwidth, up to that of one cluster of cores, and half of what
# Accelerate reaches on an M1. Judgement; nothing of it is fitted.
_CPU_BANDWIDTH: Final = 100e9
_CPU_PRODUCTS: Final = 750e9

# What is not fitted widens the interval by its share of the step, in logarithms: judgement.
_WIDER_FOR_FALLBACKS: Final = 0.9
_WIDER_FOR_HOST_CODE: Final = 0.5

_MOST_BUSY: Final = 0.9  # of the time that a program was kept from running: beyond that little is known

_MOST_PLACES: Final = 200  # whose waits are priced each for itself; the others cost next to nothing


class Happening(NamedTuple):
    """One event of a step. Times in seconds on a core of an M1.

    `host_code` is the time of the program's own code before the event, `work` the host's time in it: a loader that
    makes a batch, a CPU that computes a fallback (None: predicted from its class). `moved` are the bytes that a copy or
    a fallback moves between CPU and mps, in both directions together. `waits` is True if the host continues only when
    the device is done. `part` and `place` are any names, such as those of a phase and of a line: times are reported by
    the first, waits by the second.
    """

    kind: HappeningKind
    call: OperatorCall | None = None
    host_code: float = 0.0
    work: float | None = None
    moved: int = 0
    waits: bool = False
    part: Hashable = None
    place: Hashable = None


_Place = TypeVar("_Place", bound=Hashable)


@dataclass(frozen=True)
class WaitCost(Generic[_Place]):
    """What the waits at one place cost a step: it would be `seconds` shorter without them.

    `stands` is how many seconds the host is idle there, which is mostly longer: the GPU's work still has to be done.
    `after` is how many it then spends on what waited, such as a copy.
    """

    place: _Place
    waits: int
    seconds: float
    stands: float = 0.0
    after: float = 0.0


@dataclass(frozen=True)
class WalkedStep:
    """The predicted time of a step on a Mac. Times in seconds.

    `seconds` is the time of a step among others like it, `low` and `high` its 80 % interval. `device` is the time of
    the GPU's work in it, `device_low` and `device_high` its interval; `host` is the time in which the host is busy. A
    step's time consists only of what the rest has to wait for: `shares` lists it, the largest part first, and `bound`
    names that part. `parts` is the same time by the happenings' parts. `mac` is the Mac it is predicted for. `lead` is
    how long the GPU still works for the previous step when the host begins. `between` is the 80 % interval of the ratio
    to another Mac's time, in logarithms, and `alike` that to another Mac with the same chip and cores. `waits` lists
    the costliest places first, and `all_waits` is what a step without any wait would save.

    `calls` is the number of calls to predict, `predicted` the number of those that have a time; `left_out` gives the
    reasons for the others, with their numbers, and `unpredicted` their operators. `graphs` counts the graphs that
    MPSGraph compiles for the step, one or two for each operator with its tensors; it does so in the first step, and
    the time does not include that.
    """

    mac: Mac
    seconds: float
    low: float
    high: float
    device: float
    device_low: float
    device_high: float
    host: float
    bound: StepBound
    shares: tuple[tuple[StepBound, float], ...]
    parts: dict[Hashable, float]
    waits: tuple[WaitCost[Hashable], ...]
    all_waits: float
    calls: int
    predicted: int
    left_out: tuple[tuple[str, int], ...]
    unpredicted: tuple[tuple[str, int], ...] = ()
    graphs: int = 0
    lead: float = 0.0
    between: float = 0.0
    alike: float = 0.0
    _stretches: tuple[Stretch, ...] = field(default=(), repr=False, compare=False)
    _moves: Sequence[Move] = field(default=(), repr=False, compare=False)
    _start: tuple[float, float] = field(default=(0.0, 0.0), repr=False, compare=False)

    @property
    def covered(self) -> bool:
        """Whether enough of the calls have a time that the step's is worth telling."""
        return self.predicted >= _LEAST_COVERED * self.calls

    @property
    def host_track(self) -> Sequence[Busy]:
        """What the host does when."""
        return self._tracks[0]

    @property
    def device_track(self) -> Sequence[Busy]:
        """What the GPU does when."""
        return self._tracks[1]

    @cached_property
    def _tracks(self) -> tuple[list[Busy], list[Busy]]:
        return tracks(self._moves, self._start)  # made when they are drawn: a step may have a million calls

    def saved(self, places: Collection[Hashable], gone: Collection[Hashable] = ()) -> float:
        """How many seconds a step would save that does not wait at these places.

        A copy that waits there becomes one that does not wait; at a place that is `gone` there is none at all.
        """
        without = seconds_without(self._stretches, places.__contains__, gone.__contains__)
        return max(0.0, self.seconds - without)


def walked_step(
    happenings: Sequence[Happening],
    mac: Mac,
    release: TorchRelease,
    coefficients: Coefficients,
    busy: float = 0.0,
) -> WalkedStep:
    """The time of a step by given coefficients; else as `walk_step`."""
    book = _Book(mac, release, coefficients)
    moves = book.moves(happenings)
    places = [happening.place for happening in happenings]
    rows = stretches(moves, places)
    walked = walk_through(moves, [happening.part for happening in happenings], rows)
    waiting = Counter(place for place, move in zip(places, moves, strict=True) if move.waits)
    stands: defaultdict[Hashable, float] = defaultdict(float)
    after: defaultdict[Hashable, float] = defaultdict(float)
    for at, stood in walked.stood:
        stands[places[at]] += stood
        after[places[at]] += moves[at].after
    waits = [
        WaitCost(
            place,
            number,
            max(0.0, walked.seconds - seconds_without(rows, partial(eq, place))),
            stands[place],
            after[place],
        )
        for place, number in waiting.most_common(_MOST_PLACES)
    ]
    shares = sorted(walked.shares.items(), key=lambda row: -row[1])
    device = fsum(move.device for move in moves)
    classes = book.uncertain / device if device else 0.0
    gpu, waited = _bound_by(walked.shares)
    low, high = step_interval(gpu, waited, _widening(walked.shares, classes, busy), coefficients)
    by_waits = waited * math.log(coefficients.intervals["wait"][1])
    unlike = _widening(walked.shares, book.apart / device if device else 0.0, busy)
    _, apart = widened(coefficients.intervals["ratio"], math.hypot(unlike, by_waits))
    _, alike = widened(coefficients.intervals["ratio, one chip"], by_waits)
    device_low, device_high = widened(coefficients.intervals["step, GPU"], classes)
    return WalkedStep(
        mac=mac,
        seconds=walked.seconds,
        low=walked.seconds * low,
        high=walked.seconds * high,
        device=device,
        device_low=device * device_low,
        device_high=device * device_high,
        host=fsum(move.code + move.host + move.wait + move.after for move in moves),
        bound=shares[0][0] if walked.seconds else "nothing",
        shares=tuple(shares),
        parts=walked.parts,
        waits=tuple(sorted(waits, key=lambda wait: -wait.seconds)),
        all_waits=max(0.0, walked.seconds - seconds_without(rows, lambda _: True)),
        calls=book.calls,
        predicted=book.calls - sum(book.left_out.values()),
        left_out=tuple(book.left_out.most_common()),
        unpredicted=tuple(book.unpredicted.most_common()),
        graphs=book.graphs,
        lead=walked.lead,
        between=math.log(apart),
        alike=math.log(alike),
        _stretches=tuple(rows),
        _moves=moves,
        _start=walked.start,
    )


def _bound_by(shares: dict[StepBound, float]) -> tuple[float, float]:
    """The GPU's share of the time that GPU and host decide between them, and the share of the waits in the whole."""
    whole = fsum(shares.values())
    waits = shares.get("waits", 0.0)
    gpu = fsum(shares.get(what, 0.0) for what in ("compute", "bandwidth"))
    return (gpu / (whole - waits) if whole > waits else 0.0), (waits / whole if whole else 0.0)


def _widening(shares: dict[StepBound, float], classes: float, busy: float) -> float:
    """What widens a step's interval, in logarithms, each by its share of the time."""
    whole = fsum(shares.values())
    if not whole:
        return 0.0
    works = fsum(shares.get(what, 0.0) for what in ("compute", "bandwidth", "launch"))
    own_code = shares.get("host code", 0.0) + shares.get("loading", 0.0)
    host = own_code + shares.get("CPU fallback", 0.0)
    disturbed = -math.log(1.0 - min(busy, _MOST_BUSY))  # how much longer it took by the clock
    return math.hypot(
        classes * works / whole,
        _WIDER_FOR_FALLBACKS * shares.get("CPU fallback", 0.0) / whole,
        _WIDER_FOR_HOST_CODE * own_code / whole,
        disturbed * host / whole,
    )


class _Book:
    """What happenings cost on one Mac, each call looked up once, and what could not be predicted."""

    def __init__(self, mac: Mac, release: TorchRelease, coefficients: Coefficients) -> None:
        _, self._speed = rates(mac)  # raises for a Mac without them, also where nothing happens
        self._mac, self._release, self._coefficients = mac, release, coefficients
        self._layouts = Layouts(release.number)
        self._wait = wait_seconds(mac, coefficients)
        self._dispatch = dispatch_seconds(None, mac, release, coefficients)
        self._view = coefficients.view[release.era] * 1e-6 / self._speed
        self._known: dict[int, tuple[OperatorTime, float, float] | str] = {}
        self._kernels: dict[tuple[int, bool], tuple[Move, float, float]] = {}  # without code of the program's own
        self._calls: list[OperatorCall] = []  # kept, as they are known by their address
        self._graphs: dict[tuple[str, tuple[str, ...], tuple[str, ...]], int] = {}
        self.calls = 0
        self.uncertain = self.apart = 0.0  # seconds, each by what widens the interval of a time, and of a ratio
        self.left_out: Counter[str] = Counter()
        self.unpredicted: Counter[str] = Counter()

    @property
    def graphs(self) -> int:
        """How many graphs the happenings so far need."""
        return sum(self._graphs.values())

    def moves(self, happenings: Iterable[Happening]) -> list[Move]:
        """The moves of the clocks that a step's happenings are."""
        found: list[Move] = []
        append, kernels, speed = found.append, self._kernels.get, self._speed
        for happening in happenings:
            # Most are kernels that were seen before, and a step may have a million: only their code is looked at.
            kind, call, host_code, _, _, waits, _, _ = happening
            known = kernels((id(call), waits)) if kind == "kernel" else None
            if known is None:
                append(self._move(happening))
                continue
            move, uncertain, apart = known
            self.calls += 1
            self.uncertain += uncertain
            self.apart += apart
            code = (host_code - CALL) / speed
            append(tuple.__new__(Move, (code, *move[1:])) if code > 0.0 else move)
        return found

    def _move(self, happening: Happening) -> Move:
        code = happening.host_code / self._speed
        if happening.kind == "batch":
            return Move(code, (happening.work or 0.0) / self._speed, "loading", 0.0, "nothing")
        if happening.kind == "wait":
            return Move(code, 0.0, "waits", 0.0, "nothing", happening.waits, self._wait if happening.waits else 0.0)
        if happening.kind == "view":
            return Move(max(0.0, code - self._view), self._view, "launch", 0.0, "nothing")
        self.calls += 1
        if happening.kind == "copy":
            carry = transfer_seconds(happening.moved)
            if not happening.waits:
                return Move(code, carry, "copies", 0.0, "nothing")
            return Move(code, 0.0, "copies", 0.0, "nothing", True, self._wait, carry, (carry, 0.0))
        if happening.kind == "fallback":
            return self._fallback(happening, code)
        # The code of the program comes before the dispatch, but for what was timed with the dispatch.
        code = max(0.0, code - CALL / self._speed)
        time, wider, between = self._time(happening.call, told=True)
        wait = self._wait if happening.waits else 0.0
        if time is None:
            return Move(code, self._dispatch, "launch", 0.0, "nothing", happening.waits, wait)
        self.uncertain += time.device * wider
        self.apart += time.device * between
        if happening.call is not None and time.device and not runs_own_kernel(happening.call, self._release):
            key = happening.call.operator, happening.call.inputs, happening.call.outputs
            self._graphs[key] = graphs_of(happening.call)
        works: StepBound = time.bound if time.device else "nothing"
        move = Move(0.0, time.host, "launch", time.device, works, happening.waits, wait)
        self._kernels[id(happening.call), happening.waits] = move, time.device * wider, time.device * between
        return move._replace(code=code)

    def _fallback(self, happening: Happening, code: float) -> Move:
        seconds = happening.work / self._speed if happening.work is not None else self._on_cpu(happening.call)
        if seconds is None:
            operator = happening.call.operator if happening.call else "a call"
            self.left_out[f"{operator} runs on the CPU, and its time was not seen"] += 1
            self.unpredicted[operator] += 1
        native, *_ = self._time(happening.call, told=False)
        # What the CPU needs is copied there once the queue is empty, and its results back: both copies block.
        copies = self._wait + TRANSFER + transfer_seconds(happening.moved)
        after = copies + (seconds or 0.0)
        instead = (native.host, native.device) if native is not None else (self._dispatch, 0.0)
        return Move(code, 0.0, "CPU fallback", 0.0, "nothing", True, self._wait, after, instead)

    def _on_cpu(self, call: OperatorCall | None) -> float | None:
        """What the CPU takes for a call of a known class, None for another."""
        try:
            works = works_of(call, self._release.number) if call is not None else ()
        except CostError:
            return None
        bandwidth = min(0.5 * self._mac.memory_bandwidth, _CPU_BANDWIDTH)
        products = sum(work.operations for work in works) / (_CPU_PRODUCTS * self._speed)
        return max(products, sum(work.size for work in works) / bandwidth) if works else None

    def _time(self, call: OperatorCall | None, *, told: bool) -> tuple[OperatorTime | None, float, float]:
        """The time of a call, and what it adds to the intervals; None for one that cannot be predicted."""
        if call is None:
            return None, 0.0, 0.0
        known = self._known.get(id(call))
        if known is None:
            known = self._known[id(call)] = self._look_up(call)
            self._calls.append(call)
        if not isinstance(known, str):
            return known
        if told:
            self.left_out[known] += 1
            self.unpredicted[call.operator] += 1
        return None, 0.0, 0.0

    def _look_up(self, call: OperatorCall) -> tuple[OperatorTime, float, float] | str:
        call = self._layouts.as_laid_out(call)
        try:
            time = operator_time(call, self._mac, self._release, self._coefficients)
        except CostError as error:
            return error.reason
        if not time.device:
            return time, 0.0, 0.0
        of_time, of_ratio = (known[time.kind] for known in (self._coefficients.wider, self._coefficients.between))
        new = self._mac.chip not in self._coefficients.chips[time.kind]
        return time, math.hypot(of_time, self._coefficients.new_chip if new else 0.0), of_ratio
