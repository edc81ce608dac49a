"""Times a function, or several alternately."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anymps.train.timing._clock import CLOCK, Clock, Device, Stopwatch, Synchronize
from anymps.train.timing._compare import Comparison
from anymps.train.timing._reads import reads_of
from anymps.train.timing._timing import Run, Timing

MOST_RUNS = 10_000  # an end also for a function that takes no time


@dataclass(frozen=True)
class Contender:
    """A function and its device, for `compare`; and the time of its very first call, if that was made already."""

    function: Callable[[], object]
    device: Device = None
    first: Run | None = None


def measure(
    function: Callable[[], object],
    *,
    name: str | None = None,
    device: Device = None,
    warmup: int = 3,
    repeat: int = 20,
    min_time: float = 0.5,
    calls: int = 1,
    watch: bool = True,
    clock: Clock = CLOCK,
    synchronize: Synchronize | None = None,
) -> Timing:
    """Time a function on a device; the default is the accelerator of this machine.

    The function is called ``warmup`` times; the first call is timed and kept apart. With ``watch``, except on the CPU,
    it is called once more to see where it reads values. Then ``repeat`` runs are timed, and more until they took
    ``min_time`` seconds. A run is ``calls`` calls between two synchronises. ``clock`` returns nanoseconds;
    ``synchronize`` waits for the device.

    Raises ValueError for invalid numbers; exceptions of the function pass through.
    """
    word = name or str(getattr(function, "__name__", "function"))
    return compare(
        {word: function},
        device=device,
        warmup=warmup,
        repeat=repeat,
        min_time=min_time,
        calls=calls,
        watch=watch,
        clock=clock,
        synchronize=synchronize,
    ).timings[0]


def compare(
    functions: Mapping[str, Callable[[], object] | Contender],
    *,
    device: Device = None,
    warmup: int = 3,
    repeat: int = 20,
    min_time: float = 0.5,
    calls: int = 1,
    watch: bool = True,
    clock: Clock = CLOCK,
    synchronize: Synchronize | None = None,
) -> Comparison:
    """Time several functions alternately, and report how many times as fast as the first the others are.

    Each round runs each function once, every second round in reverse order. So a machine that gets warm or busy affects
    all of them equally. A `Contender` names its own device. The other arguments are those of `measure`; ``min_time`` is
    for all functions together.

    Raises ValueError for invalid numbers; exceptions of a function pass through.
    """
    _check(functions, warmup, repeat, min_time, calls)
    lanes = [_lane(name, given, device, clock, synchronize) for name, given in functions.items()]
    for lane in lanes:
        lane.warm_up(warmup, watch)
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
    function: Callable[[], object]
    watch: Stopwatch
    first: Run | None = None
    synchronize_ns: int = 0
    reads: tuple[str, ...] = ()
    runs: list[Run] = field(default_factory=list)
    total_ns: int = 0

    def warm_up(self, times: int, look: bool) -> None:
        self.first = self.first or self.watch.time(self.function)
        for _ in range(times - 1):
            self.function()
        if self.watch.device.type != "cpu":
            if look:
                self.reads = reads_of(self.function)
            self.synchronize_ns = self.watch.time_synchronize()

    def run(self, calls: int) -> None:
        run = self.watch.time(self.function, calls)
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
            reads=self.reads,
            virtual=self.watch.virtual,
        )


def _lane(
    name: str,
    given: Callable[[], object] | Contender,
    device: Device,
    clock: Clock,
    synchronize: Synchronize | None,
) -> _Lane:
    contender = given if isinstance(given, Contender) else Contender(given)
    where = contender.device if contender.device is not None else device
    return _Lane(name, contender.function, Stopwatch.of(where, clock, synchronize), contender.first)


def _check(functions: Mapping[str, object], warmup: int, repeat: int, min_time: float, calls: int) -> None:
    if not functions:
        raise ValueError("there is nothing to time")
    for word, number in (("warmup", warmup), ("repeat", repeat), ("calls", calls)):
        if number < 1:
            raise ValueError(f"{word} must be at least 1, not {number}")
    if min_time < 0:
        raise ValueError(f"min_time is in seconds and cannot be {min_time}")
