"""The speed of this machine's core by slices of work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anymps.capture import _core_speed
from anymps.capture._core_speed import core_speed, core_speed_at_rest

US = 1_000


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Multiplying takes the given times in us in turn, and sorting twice as long; those left are given back."""

    def give(*times: int) -> list[int]:
        left = [US * each for each in times]

        def slice_(_: tuple[float, ...]) -> tuple[int, int]:
            took = left.pop(0)
            return took, 2 * took

        monkeypatch.setattr(_core_speed, "_slice", slice_)
        monkeypatch.setattr(_core_speed, "_M1_MULTIPLY_NS", 30 * US)
        monkeypatch.setattr(_core_speed, "_M1_SORT_NS", 30 * US)
        return left

    return give


def test_the_first_slices_after_a_step_do_not_count(take: Callable[..., list[int]]) -> None:
    """At 60 us multiplying is half as fast as on an M1, and sorting a quarter; own code goes by both."""
    left = take(130, 100, 80, 58, 62, 1)
    assert core_speed() == (round((0.5 * 0.25) ** 0.6, 3), 0.25)
    assert left == [US]


def test_at_rest_the_quickest_slice_counts(take: Callable[..., list[int]]) -> None:
    """Of fifteen."""
    left = take(*[90] * 14, 60, 1)
    assert core_speed_at_rest() == (round((0.5 * 0.25) ** 0.6, 3), 0.25)
    assert left == [US]


@pytest.mark.parametrize(("slice_us", "speed"), [(0, 4.0), (1_000_000, 0.1)])
def test_nonsense_is_held_within_bounds(take: Callable[..., list[int]], slice_us: int, speed: float) -> None:
    """A clock that stands still, and a machine that stopped."""
    take(*[slice_us] * 5)
    assert core_speed() == (speed, speed)


def test_a_core_like_that_of_an_m1_has_the_speed_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """For own code and for computing."""
    monkeypatch.setattr(_core_speed, "_slice", lambda _: (_core_speed._M1_MULTIPLY_NS, _core_speed._M1_SORT_NS))
    assert core_speed() == core_speed_at_rest() == (1.0, 1.0)


def test_a_slice_takes_processor_time() -> None:
    """What other programs take of the core is not in it."""
    code, compute = _core_speed._slice((0.5, 0.25))
    assert 0 < code < 1_000_000_000
    assert 0 < compute < 1_000_000_000


def test_no_list_is_sorted_twice_in_a_look() -> None:
    """A core learns the branches of a list that it sorts again."""
    assert len(set(_core_speed._NUMBERS)) >= _core_speed._WARM_UP + _core_speed._SLICES
