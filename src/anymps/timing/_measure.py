"""Times functions alternately, each on its device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from anymps.device import is_virtual
from anymps.timing._timing import Comparison, Run, Timing

Clock = Callable[[], int]
"""Gives nanoseconds that never go back."""
Synchronize = Callable[[], None]
"""Returns when the device has done all that was queued."""

CLOCK: Clock = time.perf_counter_ns
MOST_RUNS = 10_000  # an end also for a function that takes no time


@dataclass(frozen=True)
class Stopwatch:
    """Measures time on one device."""

    device: torch.device
    clock: Clock
    synchronize: Synchronize

    @classmethod
    def of(cls, device: torch.device | str, clock: Clock = CLOCK, synchronize: Synchronize | None = None) -> Stopwatch:
        """A stopwatch for a device."""
        where = torch.device(device)
        return cls(where, clock, synchronize or _synchronizer(where))

    @property
    def virtual(self) -> bool:
        """Whether the device is anymps' own."""
        return self.device.type == "mps" and is_virtual()

    def time(self, function: Callable[[], object], calls: int = 1) -> Run:
        """Time some calls, with the device idle before and done after. The last result is released after that."""
        result: object = None
        self.synchronize()
        start = self.clock()
        for _ in range(calls):
            result = function()
        queued = self.clock()
        self.synchronize()
        run = Run(queued - start, self.clock() - start)
        del result
        return run

    def time_synchronize(self) -> int:
        """The time of a synchronise that has nothing to wait for, in nanoseconds: the median of five."""
        return sorted(self.time(lambda: None).finished_ns for _ in range(5))[2]


def _synchronizer(device: torch.device) -> Synchronize:
    """The synchronise of a device: nothing for the CPU, whose calls return when they are done."""
    if device.type in ("cpu", "meta"):
        return lambda: None
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: torch.accelerator.synchronize(device)


@dataclass(frozen=True)
class Contender:
    """A function and its device; and the time of its very first call, if that was made already."""

    function: Callable[[], object]
    device: str
    first: Run | None = None


def compare(
    contenders: Mapping[str, Contender],
    *,
    warmup: int,
    repeat: int,
    min_time: float,
    calls: int,
    clock: Clock = CLOCK,
    synchronize: Synchronize | None = None,
) -> Comparison:
    """Time several functions alternately, by name.

    Each is called ``warmup`` times; the first call is timed and kept apart. Then ``repeat`` rounds are timed, and more
    until they took ``min_time`` seconds. A round runs each function once, every second round in reverse order. So a
    machine that gets warm or busy affects all of them equally. A run is ``calls`` calls between two synchronises.

    Exceptions of a function pass through.
    """
    lanes = [_Lane(name, each, Stopwatch.of(each.device, clock, synchronize)) for name, each in contenders.items()]
    for lane in lanes:
        lane.warm_up(warmup)
    rounds = 0
    while rounds < MOST_RUNS and (rounds < repeat or sum(lane.total_ns for lane in lanes) < min_time * 1e9):
        for lane in lanes if rounds % 2 == 0 else reversed(lanes):
            lane.run(calls)
        rounds += 1
    return Comparison(tuple(lane.timing(calls) for lane in lanes))


@dataclass
class _Lane:
    """One function and what was measured of it so far."""

    name: str
    contender: Contender
    watch: Stopwatch
    first: Run | None = None
    synchronize_ns: int = 0
    runs: list[Run] = field(default_factory=list)
    total_ns: int = 0

    def warm_up(self, times: int) -> None:
        self.first = self.contender.first or self.watch.time(self.contender.function)
        for _ in range(times - 1):
            self.contender.function()
        if self.watch.device.type != "cpu":
            self.synchronize_ns = self.watch.time_synchronize()

    def run(self, calls: int) -> None:
        run = self.watch.time(self.contender.function, calls)
        self.runs.append(run)
        self.total_ns += run.finished_ns

    def timing(self, calls: int) -> Timing:
        return Timing(
            self.name,
            str(self.watch.device),
            tuple(self.runs),
            first=self.first,
            calls=calls,
            synchronize_ns=self.synchronize_ns,
            virtual=self.watch.virtual,
        )
