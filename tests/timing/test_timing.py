"""Timing on a clock of its own: what is counted, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from anymps.timing import Comparison, Contender, Run, StepTimer, Timing, compare
from anymps.timing._measure import Stopwatch
from anymps.timing._timing import warnings_of

MS = 1_000_000


class World:
    """A host and a device that share a clock: work is queued at once and done when somebody waits for it."""

    def __init__(self) -> None:
        self.now = 0
        self.device_done = 0
        self.log: list[str] = []

    def clock(self) -> int:
        return self.now

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.now = max(self.now, self.device_done)

    def work(self, name: str, *device_ms: float, host_ms: float = 1) -> Callable[[], None]:
        """A function that takes these times on the device, call by call, the last one from then on."""
        times = list(device_ms)

        def function() -> None:
            self.log.append(name)
            self.now += int(host_ms * MS)
            self.device_done = max(self.now, self.device_done) + int(
                (times.pop(0) if len(times) > 1 else times[0]) * MS
            )

        function.__name__ = name
        return function


def timing_of(*milliseconds: float, **more: object) -> Timing:
    """A timing on the CPU whose runs took these times."""
    runs = tuple(Run(int(time * MS), int(time * MS)) for time in milliseconds)
    return Timing(**{"name": "step", "device": "cpu", "runs": runs, **more})  # type: ignore[arg-type]


def compared(world: World, *names: str, **numbers: Any) -> Comparison:
    """What work takes in that world, by its name: `step 500 9` is 500 ms on the device at first, then 9 ms."""
    works = {name: world.work(name, *map(float, times)) for name, *times in map(str.split, names)}
    contenders = {name: Contender(work, "cpu") for name, work in works.items()}
    given = {"warmup": 1, "repeat": 8, "min_time": 0, "calls": 1, **numbers}
    return compare(contenders, clock=world.clock, synchronize=world.synchronize, **given)


def test_both_times_and_the_first_call_apart() -> None:
    """The host is free long before the device is done; the compiling first call and the warm-up do not count."""
    world = World()
    (found,) = compared(world, "step 500 9", warmup=3).timings
    assert found.first == Run(1 * MS, 501 * MS)
    assert found.runs == (Run(1 * MS, 10 * MS),) * 8
    assert (found.median_ns, found.queue_ns, found.iqr_ns, found.n) == (10 * MS, 1 * MS, 0, 8)
    # Idle before each run and done after it.
    one = ["synchronize", "step", "synchronize"]
    assert world.log == [*one, "step", "step", *one * 8]


def test_the_release_of_a_result_is_not_timed() -> None:
    """It takes a millisecond for each large buffer, and happens when the clock has been read."""
    world = World()

    class Result:
        def __del__(self) -> None:
            world.now += 100 * MS

    run = Stopwatch(torch.device("cpu"), world.clock, world.synchronize).time(Result)
    assert (run, world.now) == (Run(0, 0), 100 * MS)


def test_time_is_of_one_call() -> None:
    """Several calls between two synchronises: the result is for one of them."""
    world = World()
    (found,) = compared(world, "step 3", repeat=2, calls=10).timings
    # The host queues for 1 ms a call, and the device begins after the first.
    assert (found.median_ns, found.queue_ns) == (3.1 * MS, 1 * MS)


def test_min_time_adds_runs() -> None:
    """Short runs are repeated until they took long enough together."""
    assert compared(World(), "step 4", repeat=2, min_time=0.1).timings[0].n == 20


def test_text() -> None:
    """The whole text of a result: units, both times, and every warning that applies."""
    found = timing_of(
        *(10, 10, 10, 14, 16),
        device="mps",
        virtual=False,
        first=Run(MS, 2_600 * MS),
        synchronize_ns=2 * MS,
    )
    assert str(Comparison((found,))).splitlines() == [
        "      device   median                IQR      min      max   queued   first  runs",
        "step  mps     10.0 ms  10.0 ms - 14.0 ms  10.0 ms  16.0 ms  10.0 ms  2.60 s     5",
        "warning: 5 runs are too few for a median: take 8",
        "warning: noisy: IQR is 40 % of the median: something else was running, shapes changed, or the clock rate did",
        "warning: the first call took 2.60 s, 260 times the median, and is not counted; on mps every new shape "
        "compiles first",
        "warning: the synchronise alone takes 2.00 ms, 20 % of a run: put more calls in one run",
    ]


def test_nothing_to_warn_of() -> None:
    """Steady runs on a real device need no word."""
    assert warnings_of(timing_of(*[10] * 8, first=Run(MS, 12 * MS), device="mps")) == ()


def test_virtual_device_is_named_first() -> None:
    """Nobody takes this machine's times for a Mac's: in the table and in words."""
    found = timing_of(*[10] * 8, device="mps", virtual=True)
    assert "mps (virtual)" in str(Comparison((found,)))
    assert warnings_of(found) == ("virtual device: these are this machine's times, not a Mac's",)
    assert found.to_json()["virtual"] is True


def test_a_clock_too_coarse() -> None:
    """Runs of no time at all are said to be that."""
    assert warnings_of(timing_of(0, 0, 0, 0, 0, 0, 1, 1, 1)) == (
        "the clock is too coarse for a run this short: put more calls in one run",
    )


def test_compare_takes_turns() -> None:
    """Every second round goes in reverse, so neither is always the one that comes second."""
    world = World()
    found = compared(world, "a 9", "b 4")
    assert [name for name in world.log if name != "synchronize"] == ["a", "b", *["a", "b", "b", "a"] * 4]
    assert str(found).splitlines() == [
        "   device   median                IQR      min      max   queued    first  runs",
        "a  cpu     10.0 ms  10.0 ms - 10.0 ms  10.0 ms  10.0 ms  1.00 ms  10.0 ms     8",
        "b  cpu     5.00 ms  5.00 ms - 5.00 ms  5.00 ms  5.00 ms  1.00 ms  5.00 ms     8",
        "b: 2.00 times as fast as a",
    ]


def test_warnings_name_whom_they_concern() -> None:
    """What holds for all is said once, what holds for one names it."""
    comparison = Comparison((timing_of(10, 10), timing_of(10, 10, name="other", device="mps", virtual=True)))
    assert comparison.warnings == (
        "2 runs are too few for a median: take 8",
        "other: virtual device: these are this machine's times, not a Mac's",
    )


@pytest.mark.parametrize(
    ("base", "other", "text"),
    [
        ([10] * 8, [20] * 8, "b: 2.00 times as slow as a"),
        ([10, 1000] * 4, [5, 500] * 4, "b: 2.00 times as fast as a"),
        ([1] * 8, [0] * 7 + [1], "b: 1000000000.00 times as fast as a"),
    ],
)
def test_ratio_in_words(base: list[float], other: list[float], text: str) -> None:
    """What changes both times of a round alike does no harm, nor a clock that is too coarse."""
    comparison = Comparison((timing_of(*base, name="a"), timing_of(*other, name="b")))
    assert [str(ratio) for ratio in comparison.ratios] == [text]


def test_steps() -> None:
    """Steps are timed from the end of one to the end of the next, whatever happens in between."""
    world = World()
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    work = world.work("batch", 9)
    counted: list[int] = []
    with StepTimer(2, counted.append, clock=world.clock, synchronize=world.synchronize) as steps:
        for _ in range(4):
            work()
            optimizer.step()
    optimizer.step()
    found = steps.timing("step")
    assert found is not None
    assert (found.device, found.first, found.runs) == ("cpu", None, (Run(1 * MS, 10 * MS),) * 2)
    assert (counted, steps.steps) == ([0, 0, 1, 2], 4)


def test_steps_that_are_timed_no_more() -> None:
    """They are told of, and neither timed nor waited for."""
    world = World()
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    counted: list[int] = []
    with StepTimer(1, counted.append, clock=world.clock, synchronize=world.synchronize) as steps:
        for number in range(4):
            if number == 3:
                steps.stop()
            world.work("batch", 9)()
            optimizer.step()
    found = steps.timing("step")
    assert found is not None
    assert (found.n, counted, steps.steps) == (2, [0, 1, 2, 2], 4)


@pytest.mark.parametrize(
    ("order", "warmup", "runs", "waits"),
    [
        ("dgdgdgdgdg", 3, [2, 2], 8),
        ("dgdgdg", 1, [2, 2], 4),
        ("ddg" * 5, 2, [3, 3, 3], 9),
        ("dddddg" * 5, 3, [6, 6], 20),  # two of a critic's count, until its generator comes
        ("aaaaabbbb", 2, [1, 1], 9),
        ("aaaaab", 2, [1, 1, 1], 6),
        ("aaaaabababab", 2, [2, 2], 10),
    ],
)
def test_optimizers_that_take_turns(order: str, warmup: int, runs: list[int], waits: int) -> None:
    """A step is a round of all of them, and the device is waited for at its end alone, once that is known."""
    world = World()
    optimizers = {name: torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1) for name in set(order)}
    waited = 0

    def synchronize() -> None:
        nonlocal waited
        waited += 1

    counted: list[int] = []
    with StepTimer(warmup, counted.append, clock=world.clock, synchronize=synchronize) as steps:
        for name in order:
            world.work("half", 9)()
            optimizers[name].step()
    found = steps.timing("step")
    assert found is not None
    assert [run.queued_ns // MS for run in found.runs] == runs  # a millisecond for each optimizer's step
    assert waited == waits


def test_optimizers_that_are_made_anew() -> None:
    """More than take turns in any loop: each of their steps is one."""
    world = World()
    with StepTimer(2, clock=world.clock, synchronize=world.synchronize) as steps:
        kept = [torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1) for _ in range(70)]
        for optimizer in kept:
            world.work("batch", 9)()
            optimizer.step()
    found = steps.timing("step")
    assert found is not None
    assert (found.n, steps.steps) == (5, 70)


def test_no_step_no_timing() -> None:
    """Where nothing counted there is no result."""
    with StepTimer() as steps:
        pass
    assert steps.timing("step") is None


def test_measured_on_the_device(virtual_device: torch.device) -> None:
    """It is said to be virtual."""
    x = torch.ones(3, device=virtual_device)
    contender = Contender(lambda: x.sum().item(), "mps")
    (found,) = compare({"read": contender}, warmup=1, repeat=8, min_time=0, calls=1).timings
    assert (found.name, found.device, found.virtual, found.n) == ("read", "mps", True, 8)
