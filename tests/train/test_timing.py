"""`anymps.train.timing` on a clock of its own: what is counted, what is said about it, and how sure a ratio is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anymps.train import timing
from anymps.train.timing import Certainty, Contender, Run, Timing
from anymps.train.timing._compare import median_interval, ratio_of
from anymps.train.timing._measure import Stopwatch, reads_of

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


def measured(world: World, work: Callable[[], None], **numbers: float) -> Timing:
    """What a function takes in that world."""
    given: dict[str, Any] = {"min_time": 0, **numbers}
    return timing.measure(work, device="cpu", clock=world.clock, synchronize=world.synchronize, **given)


def test_both_times_and_the_first_call_apart() -> None:
    """The host is free long before the device is done; the compiling first call and the warm-up do not count."""
    world = World()
    found = measured(world, world.work("step", 500, 9), warmup=3, repeat=8)
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
    found = measured(world, world.work("step", 3), repeat=2, calls=10)
    # The host queues for 1 ms a call, and the device begins after the first.
    assert (found.median_ns, found.queue_ns) == (3.1 * MS, 1 * MS)


def test_min_time_adds_runs() -> None:
    """Short runs are repeated until they took long enough together."""
    world = World()
    assert measured(world, world.work("step", 4), repeat=2, min_time=0.1).n == 20


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"warmup": 0}, "warmup must be at least 1, not 0"),
        ({"repeat": 0}, "repeat must be at least 1, not 0"),
        ({"calls": 0}, "calls must be at least 1, not 0"),
        ({"min_time": -1}, "min_time is in seconds and cannot be -1"),
    ],
)
def test_numbers_that_make_no_sense(numbers: dict[str, int], message: str) -> None:
    """They are refused before anything is called."""
    with pytest.raises(ValueError) as caught:
        timing.measure(lambda: pytest.fail("called"), device="cpu", **numbers)
    assert str(caught.value) == message


def test_text() -> None:
    """The whole text of a result: units, both times, and every warning that applies."""
    found = timing_of(
        *(10, 10, 10, 14, 16),
        device="mps",
        virtual=False,
        first=Run(MS, 2_600 * MS),
        synchronize_ns=2 * MS,
        reads=("item() at train.py:12",),
    )
    assert str(found).splitlines() == [
        "      device   median                IQR      min      max   queued   first  runs",
        "step  mps     10.0 ms  10.0 ms - 14.0 ms  10.0 ms  16.0 ms  10.0 ms  2.60 s     5",
        "warning: 5 runs are too few for a median: take 8",
        "warning: noisy: IQR is 40 % of the median: something else was running, shapes changed, or the clock rate did",
        "warning: the first call took 2.60 s, 260 times the median, and is not counted; on mps every new shape "
        "compiles first",
        "warning: reads a value inside, so the host waits there: item() at train.py:12",
        "warning: the synchronise alone takes 2.00 ms, 20 % of a run: put more calls in one run",
    ]


def test_nothing_to_warn_of() -> None:
    """Steady runs on a real device need no word."""
    assert timing.warnings_of(timing_of(*[10] * 8, first=Run(MS, 12 * MS), device="mps")) == ()


def test_virtual_device_is_named_first() -> None:
    """Nobody takes this machine's times for a Mac's: in the table and in words."""
    found = timing_of(*[10] * 8, device="mps", virtual=True)
    assert "mps (virtual)" in timing.table([found])
    assert timing.warnings_of(found) == ("virtual device: these are this machine's times, not a Mac's",)
    assert found.to_json()["virtual"] is True


def test_a_clock_too_coarse() -> None:
    """Runs of no time at all are said to be that."""
    assert timing.warnings_of(timing_of(0, 0, 0, 0, 0, 0, 1, 1, 1)) == (
        "the clock is too coarse for a run this short: put more calls in one run",
    )


def test_compare_takes_turns() -> None:
    """Every second round goes in reverse, so neither is always the one that comes second."""
    world = World()
    found = timing.compare(
        {"a": world.work("a", 9), "b": Contender(world.work("b", 4), "cpu")},
        device="cpu",
        warmup=1,
        repeat=8,
        min_time=0,
        clock=world.clock,
        synchronize=world.synchronize,
    )
    assert [name for name in world.log if name != "synchronize"] == ["a", "b", *["a", "b", "b", "a"] * 4]
    assert str(found).splitlines() == [
        "   device   median                IQR      min      max   queued    first  runs",
        "a  cpu     10.0 ms  10.0 ms - 10.0 ms  10.0 ms  10.0 ms  1.00 ms  10.0 ms     8",
        "b  cpu     5.00 ms  5.00 ms - 5.00 ms  5.00 ms  5.00 ms  1.00 ms  5.00 ms     8",
        "b: 2.00 times as fast as a, surely (2.00 to 2.00)",
    ]


def test_warnings_name_whom_they_concern() -> None:
    """What holds for all is said once, what holds for one names it."""
    comparison = timing.Comparison((timing_of(10, 10), timing_of(10, 10, name="other", reads=("item()",))))
    assert comparison.warnings == (
        "2 runs are too few for a median: take 8",
        "other: reads a value inside, so the host waits there: item()",
    )


@pytest.mark.parametrize(
    ("base", "other", "text"),
    [
        ([10] * 5, [5] * 5, "b: too few rounds to compare it with a (5)"),
        ([10] * 6, [5] * 6, "b: 2.00 times as fast as a, probably (2.00 to 2.00)"),
        ([10] * 8, [20] * 8, "b: 2.00 times as slow as a, surely (2.00 to 2.00)"),
        ([10] * 8, [10.01] * 8, "b: as fast as a, within 1 % (1.00 to 1.00 times)"),
        ([10] * 8, [5, 20] * 4, "b: no difference from a seen (0.50 to 2.00 times)"),
        ([10, 1000] * 4, [5, 500] * 4, "b: 2.00 times as fast as a, surely (2.00 to 2.00)"),
    ],
)
def test_ratio_in_words(base: list[float], other: list[float], text: str) -> None:
    """A difference is called sure only as far as the rounds carry it; what changes both alike does no harm."""
    assert str(ratio_of(timing_of(*other, name="b"), timing_of(*base, name="a"))) == text


def test_many_comparisons_are_held_to_more() -> None:
    """Nine comparisons have nine chances to be wrong: eight rounds are then sure of nothing."""
    one, other = timing_of(*[10] * 8, name="a"), timing_of(*[5] * 8, name="b")
    assert ratio_of(other, one, 1).certainty is Certainty.SURE
    assert ratio_of(other, one, 5).certainty is Certainty.LIKELY
    assert ratio_of(other, one, 9).certainty is Certainty.TOO_FEW


def test_unpaired_runs_are_not_compared() -> None:
    """Runs that are not as many were not taken in turns."""
    with pytest.raises(ValueError, match=r"^runs that did not alternate cannot be compared$"):
        ratio_of(timing_of(1), timing_of(1, 1))


def test_median_interval() -> None:
    """The places of the sign test's tables, and the promised share of misses on random values."""
    places = {5: None, 6: (0, 5), 8: (0, 7), 9: (1, 7), 20: (5, 14), 2000: (955, 1044)}
    assert {n: median_interval(range(n), 0.05) for n in places} == places
    draw = random.Random(0)
    samples = [sorted(draw.expovariate(1) for _ in range(20)) for _ in range(1000)]
    intervals = [median_interval(sample, 0.05) for sample in samples]
    missed = sum(1 for found in intervals if found is None or not found[0] <= 0.6931 <= found[1])
    assert 20 <= missed <= 60  # 41 to be expected: the next whole place below 5 %


def test_steps() -> None:
    """Steps are timed from the end of one to the end of the next, whatever happens in between."""
    world = World()
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    work = world.work("batch", 9)
    counted: list[int] = []
    with timing.StepTimer(2, counted.append, clock=world.clock, synchronize=world.synchronize) as steps:
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
    with timing.StepTimer(1, counted.append, clock=world.clock, synchronize=world.synchronize) as steps:
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
    with timing.StepTimer(warmup, counted.append, clock=world.clock, synchronize=synchronize) as steps:
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
    with timing.StepTimer(2, clock=world.clock, synchronize=world.synchronize) as steps:
        kept = [torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1) for _ in range(70)]
        for optimizer in kept:
            world.work("batch", 9)()
            optimizer.step()
    found = steps.timing("step")
    assert found is not None
    assert (found.n, steps.steps) == (5, 70)


def test_no_step_no_timing() -> None:
    """Where nothing counted there is no result."""
    with timing.StepTimer() as steps:
        pass
    assert steps.timing("step") is None
    with pytest.raises(ValueError, match=r"^warmup must be at least 1, not 0: the first step has no beginning$"):
        timing.StepTimer(0)


def test_reads(mps_device: torch.device) -> None:
    """Reads from the device are found with their lines; work on the CPU and copies that do not wait are none."""
    on_device, on_cpu = torch.ones(3, device=mps_device), torch.ones(3)

    def function() -> None:
        if on_device.sum() > 2:
            on_device.to("cpu")
        on_cpu.copy_(on_device)
        on_device.nonzero()
        on_cpu.sum().item()
        on_cpu.to(mps_device)
        torch.ones(3).copy_(on_device, non_blocking=True)

    line = function.__code__.co_firstlineno
    assert reads_of(function) == (
        f"item() at test_timing.py:{line + 1}",
        f"copy to the CPU at test_timing.py:{line + 2}",
        f"copy to the CPU at test_timing.py:{line + 3}",
        f"nonzero at test_timing.py:{line + 4}",
    )


def test_measured_on_the_device(virtual_device: torch.device) -> None:
    """The accelerator is taken where no device is named; it is said to be virtual, and reads inside are told."""
    x = torch.ones(3, device=virtual_device)
    found = timing.measure(lambda: x.sum().item(), name="read", repeat=8, min_time=0)
    assert (found.name, found.device, found.virtual, found.n) == ("read", "mps", True, 8)
    assert [text.partition(" at ")[0] for text in found.reads] == ["item()"]
    assert timing.measure(lambda: x.sum().item(), repeat=1, min_time=0, watch=False).reads == ()
