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
    """Slices that take the given times; what is left of them is given back. The clock stands still."""

    def give(*times: int) -> list[int]:
        left = list(times)
        monkeypatch.setattr(_core_speed, "_slice", lambda: left.pop(0))
        monkeypatch.setattr(_core_speed, "_SLICES", 2)
        return left

    return give


def test_the_quickest_slice_since_the_beginning_counts(take: Callable[..., list[int]]) -> None:
    """A slice of 250 us is half as fast as an M1. What was quicker before the script ran says nothing of its loop."""
    take(500_000, 125_000, 250_000, 900_000)
    speed = CoreSpeed()
    assert (speed.begin(), speed.end()) == (1.0, 0.5)


def test_a_run_is_asked_at_every_fourth_step_and_after_a_pause(
    take: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So most steps are free of it, and short ones nearly all."""
    now = [0]
    monkeypatch.setattr(_core_speed.time, "monotonic_ns", lambda: now[0])
    left = take(*[500_000] * 20)
    speed = CoreSpeed()
    taken = []
    for step in range(1, 13):
        now[0] = 60_000_000 * step if step < 9 else 500_000_000
        before = len(left)
        speed.stepped()
        if len(left) < before:
            taken.append(step)
    assert taken == [4, 8]


@pytest.mark.parametrize(("slice_ns", "speed"), [(1, 4.0), (1_000_000_000, 0.1)])
def test_nonsense_is_held_within_bounds(take: Callable[..., list[int]], slice_ns: int, speed: float) -> None:
    """A clock that stands still, and a machine that stopped."""
    take(slice_ns, slice_ns)
    assert CoreSpeed().begin() == speed


def test_a_slice_takes_processor_time() -> None:
    """What other programs take of the core is not in it."""
    assert 0 < _core_speed._slice() < 1_000_000_000


@pytest.mark.usefixtures("virtual_device")
def test_a_recording_holds_what_was_found_by_its_end(
    take: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two slices at the beginning, which count no more, one at the fourth step, the quickest, and two at the end."""
    left = take(125_000, 500_000, 250_000, 500_000, 400_000, 1)
    monkeypatch.setattr(_core_speed, "_PAUSE_NS", -1)
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with anymps.record(tmp_path / "run.anymps"):
        for _ in range(4):
            weight.sum().backward()
            optimizer.step()
    assert left == [1]
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert recording.meta["core_speed"] == 0.5
