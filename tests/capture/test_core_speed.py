"""The speed of this machine's core: measured through a run, kept in recordings of the virtual device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import anymps
from anymps.capture import _core_speed
from anymps.capture._core_speed import CoreSpeed
from anymps.record import Recording


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Slices of multiplying that take the given times, and of sorting twice as long; what is left is given back."""

    def give(*times: int) -> list[int]:
        left = list(times)

        def slice_() -> tuple[int, int]:
            took = left.pop(0)
            return took, 2 * took

        monkeypatch.setattr(_core_speed, "_slice", slice_)
        monkeypatch.setattr(_core_speed, "_SLICES", 2)
        monkeypatch.setattr(_core_speed, "_ENOUGH", 2)
        monkeypatch.setattr(_core_speed, "_M1_CODE_NS", 30_000)
        monkeypatch.setattr(_core_speed, "_M1_COMPUTE_NS", 30_000)
        return left

    return give


def test_without_steps_the_end_counts(take: Callable[..., list[int]]) -> None:
    """A slice of 60 us is half as fast as an M1. What was quicker before the script ran says nothing of its loop."""
    take(120_000, 30_000, 60_000, 225_000)
    speed = CoreSpeed()
    assert speed.begin() == {"core_speed": 1.0, "compute_speed": 0.5}
    assert speed.end() == {"core_speed": 0.5, "compute_speed": 0.25}


def test_what_lies_between_steps_counts_beside_a_quicker_end(take: Callable[..., list[int]]) -> None:
    """Another program had half of the core during the steps, and was gone by the end."""
    left = take(60_000, 60_000, 150_000, 110_000, 120_000, 130_000, 30_000)
    speed = CoreSpeed()
    speed.begin()
    for _ in range(3):
        speed.stepped()
    assert left == [30_000]
    assert speed.end() == {"core_speed": 0.273, "compute_speed": 0.136}


def test_few_looks_count_beside_the_end(take: Callable[..., list[int]]) -> None:
    """One step was looked at."""
    take(120_000, 120_000, 150_000, 110_000, 100_000, 60_000)
    speed = CoreSpeed()
    speed.begin()
    for _ in range(2):
        speed.stepped()
    assert speed.end() == {"core_speed": 0.5, "compute_speed": 0.25}


def test_a_run_is_looked_at_in_two_of_four_steps_and_later_after_a_pause(
    take: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run has slices where its steps are, and two of four steps are free of them; then nearly all are."""
    now = [0]
    monkeypatch.setattr(_core_speed.time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(_core_speed, "_SOON", 8)
    left = take(*[500_000] * 20)
    speed = CoreSpeed()
    taken = []
    for step in range(1, 25):
        now[0] += 1_000_000 if step <= 8 else 30_000_000
        before = len(left)
        speed.stepped()
        if len(left) < before:
            taken.append(step)
    assert taken == [2, 3, 6, 7, 14, 18, 22]


@pytest.mark.parametrize(("slice_ns", "speed"), [(0, 4.0), (1_000_000_000, 0.1)])
def test_nonsense_is_held_within_bounds(take: Callable[..., list[int]], slice_ns: int, speed: float) -> None:
    """A clock that stands still, and a machine that stopped."""
    take(slice_ns, slice_ns)
    assert CoreSpeed().begin() == {"core_speed": speed, "compute_speed": speed}


def test_a_slice_takes_processor_time() -> None:
    """What other programs take of the core is not in it."""
    code, compute = _core_speed._slice()
    assert 0 < code < 1_000_000_000
    assert 0 < compute < 1_000_000_000


@pytest.mark.usefixtures("virtual_device")
def test_a_recording_holds_what_was_found_by_its_end(take: Callable[..., list[int]], tmp_path: Path) -> None:
    """Two slices at the beginning, which count no more, and two in each of two steps, with the quickest."""
    left = take(10_000, 10_000, 120_000, 90_000, 60_000, 120_000, 1)
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with anymps.record(tmp_path / "run.anymps"):
        for _ in range(4):
            weight.sum().backward()
            optimizer.step()
    assert left == [1]
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert (recording.meta["core_speed"], recording.meta["compute_speed"]) == (0.5, 0.25)


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize("optimizers", [0, 1])
def test_a_call_that_is_a_step_is_looked_at_once(
    optimizers: int, take: Callable[..., list[int]], tmp_path: Path
) -> None:
    """Without an optimizer at its end, with one when that has stepped."""
    left = take(10_000, 10_000, 120_000, 90_000, 60_000, 120_000, 1)
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with anymps.record(tmp_path / "run.anymps") as capture:
        for _ in range(4):
            with capture.call():
                weight.sum().backward()
                if optimizers:
                    optimizer.step()
    assert left == [1]
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert (recording.meta["core_speed"], recording.meta["compute_speed"]) == (0.5, 0.25)
