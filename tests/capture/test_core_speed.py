"""The speed of this machine's core: measured once a process, kept in recordings of the virtual device."""

from __future__ import annotations

import pytest

from anymps.capture import _run_facts
from anymps.capture._run_facts import core_speed


def test_the_median_slice_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of 436 us is half as fast as an M1, whatever the slowest and the quickest took; it is measured once."""
    slices = iter([900_000, 436_000, 150_000])
    sorted_numbers = []

    def measured(numbers: list[float]) -> int:
        sorted_numbers.append(tuple(numbers))
        return next(slices)

    monkeypatch.setattr(_run_facts, "_SLICES", 3)
    monkeypatch.setattr(_run_facts, "_slice", measured)
    core_speed.cache_clear()
    try:
        assert [core_speed(), core_speed()] == [0.5, 0.5]
        assert [4096] * 3 == [len(numbers) for numbers in sorted_numbers]
        assert len(set(sorted_numbers)) == 3, "a core would learn the branches of numbers that it has sorted"
    finally:
        core_speed.cache_clear()


@pytest.mark.parametrize(("slice_ns", "speed"), [(1, 4.0), (1_000_000_000, 0.1)])
def test_nonsense_is_held_within_bounds(monkeypatch: pytest.MonkeyPatch, slice_ns: int, speed: float) -> None:
    """A clock that stands still, and a machine that stopped."""
    monkeypatch.setattr(_run_facts, "_slice", lambda _: slice_ns)
    core_speed.cache_clear()
    try:
        assert core_speed() == speed
    finally:
        core_speed.cache_clear()


def test_a_slice_takes_processor_time() -> None:
    """What other programs take of the core is not in it, so it is no more than the clock of the wall says."""
    assert 0 < _run_facts._slice([float(-number) for number in range(4096)])
