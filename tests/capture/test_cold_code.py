"""What code costs that a step runs once: measured over two of four steps, kept in recordings of the virtual device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import anymps
from anymps.capture import _cold_code
from anymps.capture._cold_code import ColdCode
from anymps.record import Recording


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Runs of the piece that take the given times in us; what is left of them is given back. Each step takes 10 ms."""
    now = [0]

    def later() -> int:
        now[0] += 10_000_000
        return now[0]

    monkeypatch.setattr(_cold_code.time, "monotonic_ns", later)

    def give(*times: int) -> list[int]:
        left = [1000 * each for each in times]
        monkeypatch.setattr(_cold_code, "_piece", lambda: left.pop(0))
        return left

    return give


def test_the_first_run_of_a_step_counts_beside_the_second(runs: Callable[..., list[int]]) -> None:
    """Steps 2 and 6 run it for the first time, which tells nothing: how long ago it ran before is another thing."""
    left = runs(900, 60, 12, 900, 48, 15, 1)
    cold = ColdCode()
    after = []
    for _ in range(8):
        cold.stepped()
        after.append(len(left))
    assert after == [7, 6, 4, 4, 4, 3, 1, 1]
    assert cold.microseconds == [48.0, 12.0]


def test_without_two_steps_nothing_is_known(runs: Callable[..., list[int]]) -> None:
    """Two steps run it once."""
    runs(900)
    cold = ColdCode()
    cold.stepped()
    cold.stepped()
    assert cold.microseconds == []


def test_short_steps_are_mostly_free_of_it(runs: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock hardly moves on: one measurement."""
    monkeypatch.setattr(_cold_code.time, "monotonic_ns", lambda: 6_000_000)
    left = runs(900, 60, 12, 1)
    cold = ColdCode()
    for _ in range(12):
        cold.stepped()
    assert left == [1000]


def test_a_second_run_that_was_held_up_is_no_slower_than_the_first(runs: Callable[..., list[int]]) -> None:
    """As a file holds it, the first takes no less."""
    runs(900, 10, 12)
    cold = ColdCode()
    for _ in range(3):
        cold.stepped()
    assert cold.microseconds == [12.0, 12.0]


def test_the_piece_takes_processor_time() -> None:
    """What other programs take of the core is not in it."""
    assert 0 < _cold_code._piece() < 1_000_000_000


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize(("steps", "measured"), [(3, [48.0, 12.0]), (2, [])])
def test_a_recording_holds_it(
    steps: int, measured: list[float], runs: Callable[..., list[int]], tmp_path: Path
) -> None:
    """Of a training of three steps; of two it holds nothing."""
    runs(900, 48, 12)
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with anymps.record(tmp_path / "run.anymps"):
        for _ in range(steps):
            weight.sum().backward()
            optimizer.step()
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert recording.meta["cold_code"] == measured
