"""Shares as people write them: one function for findings, forecasts, reports and comparisons."""

from __future__ import annotations

import math
import re

import pytest

from anymps._text import percent
from anymps.report.comparison import _words as words


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.004, "<1 %"), (0.006, "1 %"), (0.01, "1 %"), (0.126, "13 %"), (1.0, "100 %"), (12.34, "1,234 %")],
)
def test_whole_numbers(share: float, text: str) -> None:
    """Most shares have no digits after the point."""
    assert percent(share) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (1e-07, "<0.001 %"),
        (4.9e-06, "<0.001 %"),
        (9.99e-06, "0.001 %"),
        (1e-05, "0.001 %"),
        (0.0084, "0.84 %"),
        (0.09, "9 %"),
        (0.3141, "31.4 %"),
        (1.0, "100 %"),
        (9.996, "1,000 %"),
        (12345.6, "1,234,560 %"),
        (math.inf, "infinity"),
        (math.nan, "infinity"),
    ],
)
def test_small_shares_of_a_comparison(share: float, text: str) -> None:
    """A comparison tells a thousandth of a per cent, and says of what is below only that."""
    assert words.percent(share) == text


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.001 %"), (1e-07, "0.001 %"), (0.0084, "0.84 %")])
def test_a_bound(share: float, text: str) -> None:
    """A sentence that says `at most` needs a number."""
    assert words.at_most(share) == text


def test_no_exponents() -> None:
    """No size of a share is written as `1e-05`."""
    for power in range(-12, 9):
        for digit in (1.0, 9.96, 9.9999):
            for least in (1.0, 0.001):
                assert re.fullmatch(r"<?[0-9,]+(\.[0-9]+)? %", percent(digit * 10.0**power, least))
