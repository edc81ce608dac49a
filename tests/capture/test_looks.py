"""Looks at the machine between steps: when they are taken, what speed they find, and what a recording holds of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import anymps
from anymps.capture import _looks
from anymps.capture._looks import CoreSpeed, Looks, core_speed, core_speed_at_rest
from anymps.record import Recording

US, MS = 1_000, 1_000_000
Clock = Callable[[], int]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The speed of code (half of it for computing) that looks find in turn; then 1.0. At rest it is 2.0."""
    answers: list[float] = []

    def speed() -> CoreSpeed:
        code = answers.pop(0) if answers else 1.0
        return CoreSpeed(code, code / 2)

    monkeypatch.setattr(_looks, "core_speed", speed)
    monkeypatch.setattr(_looks, "core_speed_at_rest", lambda: CoreSpeed(2.0, 1.5))
    return answers


def clock_of(step: int, inside: int = 8) -> Clock:
    """A clock on which each step takes so many ms, and a look `inside`."""
    now, reading = [0], [0]

    def clock_ns() -> int:
        reading[0] += 1
        now[0] += (step if reading[0] % 2 else inside) * MS
        return now[0]

    return clock_ns


def test_a_look_is_kept_with_its_time(found: list[float]) -> None:
    """And with both speeds."""
    found += [0.5, 0.25]
    looks, clock = Looks(), clock_of(100)
    looks.stepped(clock)
    looks.stepped(clock)
    assert looks.end()["looks"] == [
        (100 * MS, 108 * MS, 0, 0.5, 0.25),
        (208 * MS, 216 * MS, 0, 0.25, 0.125),
    ]


@pytest.mark.parametrize(
    ("steps", "speeds", "told"),
    [(0, [], (2.0, 1.5)), (3, [], (2.0, 1.5)), (4, [0.4, 0.5, 0.3, 0.4], (0.5, 0.25))],
)
def test_the_whole_run_has_the_highest_speed(
    steps: int, speeds: list[float], told: tuple[float, float], found: list[float]
) -> None:
    """The end counts up to three looks; what was found before the script ran says nothing of its loop."""
    found += speeds
    looks, clock = Looks(), clock_of(100)
    assert looks.begin() == {"core_speed": 2.0, "compute_speed": 1.5}
    for _ in range(steps):
        looks.stepped(clock)
    end = looks.end()
    assert (end["core_speed"], end["compute_speed"]) == told


@pytest.mark.usefixtures("found")
def test_the_first_steps_are_looked_at_and_then_one_after_a_pause() -> None:
    """A short run has a look in each step."""
    looks, now, taken = Looks(), [0], []
    for step in range(1, 91):
        now[0] += 30 * MS
        before = len(looks._looks)
        looks.stepped(lambda: now[0])
        if len(looks._looks) > before:
            taken.append(step)
    assert taken == [*range(1, 25), 38, 52, 66, 80]


@pytest.mark.usefixtures("found")
def test_of_a_long_run_fewer_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first steps, and of later ones every second; the pause doubles."""
    monkeypatch.setattr(_looks, "_MOST", 32)
    looks, clock = Looks(), clock_of(1000)
    for _ in range(33):
        looks.stepped(clock)
    rows = looks.end()["looks"]
    assert isinstance(rows, list)
    assert [row[0] // (1008 * MS) for row in rows] == [*range(24), 25, 27, 29, 31]
    assert looks._pause == 2 * _looks._PAUSE_NS


@pytest.mark.usefixtures("found")
def test_the_first_steps_of_a_part_are_looked_at() -> None:
    """As those of a run are; what was before does not count."""
    looks, now = Looks(), [0]
    for _ in range(40):
        looks.stepped(lambda: now[0])
    looks.begin_part()
    for _ in range(3):
        looks.stepped(lambda: now[0])
    rows = looks.end()["looks"]
    assert isinstance(rows, list)
    assert len(rows) == 3


@pytest.mark.usefixtures("virtual_device", "found")
@pytest.mark.parametrize("optimizers", [0, 1])
@pytest.mark.parametrize("called", [False, True])
def test_a_recording_holds_a_look_at_the_end_of_each_step(optimizers: int, called: bool, tmp_path: Path) -> None:
    """Of an optimizer's, and of a call that is a step, whatever it calls."""
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([weight])

    def step() -> None:
        weight.sum().backward()
        if optimizers:
            optimizer.step()

    with anymps.record(tmp_path / "run.anymps") as capture:
        for _ in range(4):
            if called:
                with capture.call():
                    step()
            else:
                step()
    with Recording.open(tmp_path / "run.anymps") as recording:
        looks, steps = recording.meta["looks"], [step for step in recording.steps() if step.complete]
        assert len(looks) == (4 if optimizers or called else 0)
        if looks:
            ends = [step.end_ns or 0 for step in steps][-3:]
            assert all(look[1] <= end for look, end in zip(looks[-3:], ends, strict=True))
            assert all(look[0] > end for look, end in zip(looks[-2:], ends[:-1], strict=True))


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Multiplying takes the given times in us in turn, and sorting twice as long; those left are given back."""

    def give(*times: int) -> list[int]:
        left = [US * each for each in times]

        def slice_(_: tuple[float, ...]) -> tuple[int, int]:
            took = left.pop(0)
            return took, 2 * took

        monkeypatch.setattr(_looks, "_slice", slice_)
        monkeypatch.setattr(_looks, "_M1_MULTIPLY_NS", 30 * US)
        monkeypatch.setattr(_looks, "_M1_SORT_NS", 30 * US)
        return left

    return give


@pytest.mark.parametrize(
    ("speed", "times"), [(core_speed, [130, 100, 80, 58, 62]), (core_speed_at_rest, [*[90] * 14, 60])]
)
def test_the_quickest_slice_counts(
    speed: Callable[[], CoreSpeed], times: list[int], take: Callable[..., list[int]]
) -> None:
    """Of fifteen at rest; the first ones after a step do not count.

    At 60 us multiplying is half as fast as on an M1, and sorting a quarter; own code goes by both.
    """
    left = take(*times, 1)
    assert speed() == (round((0.5 * 0.25) ** 0.6, 3), 0.25)
    assert left == [US]


@pytest.mark.parametrize(("slice_us", "speed"), [(0, 4.0), (1_000_000, 0.1)])
def test_nonsense_is_held_within_bounds(take: Callable[..., list[int]], slice_us: int, speed: float) -> None:
    """A clock that stands still, and a machine that stopped."""
    take(*[slice_us] * 5)
    assert core_speed() == (speed, speed)


def test_a_core_like_that_of_an_m1_has_the_speed_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """For own code and for computing."""
    monkeypatch.setattr(_looks, "_slice", lambda _: (_looks._M1_MULTIPLY_NS, _looks._M1_SORT_NS))
    assert core_speed() == core_speed_at_rest() == (1.0, 1.0)


def test_a_slice_takes_processor_time() -> None:
    """What other programs take of the core is not in it."""
    code, compute = _looks._slice((0.5, 0.25))
    assert 0 < code < 1_000_000_000
    assert 0 < compute < 1_000_000_000


def test_no_list_is_sorted_twice_in_a_look() -> None:
    """A core learns the branches of a list that it sorts again."""
    assert len(set(_looks._NUMBERS)) >= _looks._WARM_UP + _looks._SLICES
