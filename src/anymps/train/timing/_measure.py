"""Times a function, or several alternately."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anymps.device import is_virtual
from anymps.train.timing._compare import Comparison
from anymps.train.timing._timing import Run, Timing

Clock = Callable[[], int]
"""Gives nanoseconds that never go back."""
Synchronize = Callable[[], None]
"""Returns when the device has done all that was queued."""
Device = torch.device | str | None

CLOCK: Clock = time.perf_counter_ns
MOST_RUNS = 10_000  # an end also for a function that takes no time
_OWN = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))


@dataclass(frozen=True)
class Stopwatch:
    """Measures time on one device."""

    device: torch.device
    clock: Clock
    synchronize: Synchronize

    @classmethod
    def of(cls, device: Device, clock: Clock = CLOCK, synchronize: Synchronize | None = None) -> Stopwatch:
        """A stopwatch for a device: without one named, the accelerator that is there, else the CPU."""
        where = resolve(device)
        return cls(where, clock, synchronize or synchronizer(where))

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


def resolve(device: Device) -> torch.device:
    """The device that is meant. Raises RuntimeError, torch's own, for a name that torch does not know."""
    if device is not None:
        return torch.device(device)
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def synchronizer(device: torch.device) -> Synchronize:
    """The synchronise of a device: nothing for the CPU, whose calls return when they are done."""
    if device.type in ("cpu", "meta"):
        return lambda: None
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: torch.accelerator.synchronize(device)


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


def reads_of(function: Callable[[], object]) -> tuple[str, ...]:
    """Call the function once and return where it reads from a device, each place once, as `item() at train.py:12`.

    Sees the reads that every device has: `item()` and what stands on it (`if`, `float`, `print`), blocking copies to
    the CPU, and operators whose result's size depends on values. A synchronise of the function's own is not seen, nor
    is anything inside of compiled code.
    """
    watch = _Watch()
    with watch:
        function()
    return tuple(watch.places)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every operator on its way to its kernel."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.places: dict[str, None] = {}  # a set that keeps its order

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        what = _read(func._schema.name, args, kwargs)
        if what:
            self.places[what + _place()] = None
        return func(*args, **kwargs)


def _read(operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What kind of read a call is; empty if it is none."""
    name = operator.removeprefix("aten::")
    if name == "copy_":
        from_device = not args[0].is_meta and args[0].device.type == "cpu" and _on_device(args[1])
        blocking = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
        return "copy to the CPU" if from_device and blocking else ""
    if not args or not _on_device(args[0]):
        return ""
    if name == "_local_scalar_dense":
        return "item()"
    if name == "_to_copy":
        to = kwargs.get("device")
        return "copy to the CPU" if to is not None and to.type == "cpu" and not kwargs.get("non_blocking") else ""
    if name in ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"):
        return name
    return ""


def _on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta")


def _place() -> str:
    """` at file:line`, the innermost line that is the user's; empty in a thread that runs none of it."""
    frame = sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((*_OWN, "<")):
            return f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
