"""How reports write counts, sizes and durations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anymps._text import estimate
from anymps.report import _text as text


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        (
            text.count,
            {0: "", 0.04: "<0.1", 0.5: "0.5", 1: "1", 2.25: "2.2", 1000: "1,000", 999.96: "1,000"},
        ),
        (
            text.size,
            {0: "", 0.2: "1 B", 1024: "1 KiB", 1536: "1.5 KiB", 1048570: "1 MiB", 3 << 40: "3 TiB"},
        ),
        (
            text.duration,
            {0: "", 850: "850 ns", 1234: "1.23 us", 999_960: "1.00 ms", 12_345_678: "12.3 ms", 2.5e9: "2.50 s"},
        ),
    ],
)
def test_numbers(written: Callable[[float], str], numbers: dict[float, str]) -> None:
    """In the unit that keeps them short; nothing is an empty cell."""
    assert {number: written(number) for number in numbers} == numbers


def test_duration_ranges_share_a_unit() -> None:
    """A range is told in one unit, unless its ends are far apart."""
    assert text.duration_range(300_000, 600_000) == "300 to 600 us"
    assert text.duration_range(300_000, 1_600_000) == "0.30 to 1.60 ms"
    assert text.duration_range(300, 1_600_000) == "300 ns to 1.60 ms"
    assert text.duration_range(0, 500) == "0 to 500 ns"
    assert text.duration_range(1_201_000, 1_204_000) == "1.20 ms"
    assert text.duration_range(0, 0) == "0"


def test_an_estimate_and_its_interval_share_a_unit() -> None:
    assert estimate(909e-6, 606e-6, 1514e-6) == ("909 us", "606 to 1,510 us")
    assert estimate(0.883, 0.561, 1.4) == ("883 ms", "561 to 1,400 ms")
    assert estimate(1.05e-3, 630e-6, 1.9e-3) == ("1.05 ms", "0.63 to 1.90 ms")
    assert estimate(2e-3, 10e-6, 4e-3) == ("2.00 ms", "10.0 us to 4.00 ms")
    assert estimate(2e-6, 1e-6, 30e-3) == ("2.00 us", "1.00 us to 30.0 ms")
    assert estimate(500e-9, 300e-9, 2e-6) == ("500 ns", "300 to 2,000 ns")
