"""Samplers of the Metal stream, and what is made of several draws: gamma, Poisson, permutations, dropout."""

from __future__ import annotations

import math

import numpy as np
import pytest

from philox_traces import FLOATING, Send, draw, expected
from reference_philox import block, unit

RATES = [0.0, 0.01, 0.7, 3.0, 9.99, 10.0, 12.5, 60.0, 1000.0, 1e5]


def test_gamma_never_loops_for_ever(send: Send) -> None:
    """Inputs on which the Metal loop would not end give NaN; infinity stays infinite; alpha 0 gives 0."""
    _, values = draw(send, 1, 0, "gamma", "float", 5, math.nan, -5.0, -1.0, math.inf, 0.0)
    assert [math.isnan(value) for value in values[:3]] == [True, True, True]
    assert [math.inf, 0.0] == values[3:]


def test_gamma_has_a_smallest_value(send: Send) -> None:
    """A gamma that underflows becomes FLT_MIN, which a half then rounds to zero."""
    _, values = draw(send, 13, 0, "gamma", "float", 40, *[1e-3] * 40)
    assert min(values) == 2.0**-126
    _, values = draw(send, 13, 0, "gamma", "half", 40, *[1e-3] * 40)
    assert min(values) == 0


def test_dirichlet_is_clamped(send: Send) -> None:
    """Shares of nearly nothing become FLT_MIN, shares of nearly all 1 - eps."""
    _, values = draw(send, 3, 0, "dirichlet", "float", 1, 2, 1e-3, 1e3)
    assert [min(values), max(values)] == [2.0**-126, 1 - 2**-23]


@pytest.mark.parametrize("kind", FLOATING)
def test_poisson(send: Send, kind: str) -> None:
    """Counts agree with the reference on both sides of the change of method at rate 10."""
    rate = [r for r in RATES if kind != "half" or r < 6e4] * 20
    wanted = expected(13, 4, "poisson", kind, len(rate), *rate)
    got = draw(send, 13, 4, "poisson", kind, len(rate), *rate)
    assert 4 + 32 * len(rate) == got[0]
    assert wanted == got


def test_poisson_of_no_rate_is_zero(send: Send) -> None:
    """Negative, infinite and NaN rates give 0, as on Metal."""
    assert draw(send, 1, 0, "poisson", "float", 4, -3.0, math.inf, math.nan, 0.0)[1] == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", FLOATING)
def test_binomial(send: Send, kind: str) -> None:
    """Counts agree with the reference in all four branches and for the certain cases."""
    pairs = [(10.0, 0.3), (10.0, 0.8), (100.0, 0.4), (100.0, 0.7), (1e4, 0.01), (0.0, 0.5), (7.0, 0.0), (7.0, 1.0)] * 15
    words = [count for count, _ in pairs] + [p for _, p in pairs]
    wanted = expected(13, 4, "binomial", kind, len(pairs), *words)
    got = draw(send, 13, 4, "binomial", kind, len(pairs), *words)
    assert 4 + 32 * len(pairs) == got[0]
    assert wanted == got


def test_binomial_acceptance_border(send: Send) -> None:
    """The rejection test of BTRS is the log ratio of the two probabilities: at most a stray draw goes the other way."""
    words = [40.0] * 3000 + [0.3] * 3000
    _, wanted = expected(23, 0, "binomial", "float", 3000, *words)
    _, got = draw(send, 23, 0, "binomial", "float", 3000, *words)
    assert sum(one != other for one, other in zip(wanted, got, strict=True)) <= 1


def test_binomial_of_no_number_is_nan(send: Send) -> None:
    """NaN and infinite counts and NaN probabilities give NaN and do not hang."""
    words = [math.nan, math.inf, 5.0, 0.5, 0.5, math.nan]
    assert [math.isnan(value) for value in draw(send, 1, 0, "binomial", "float", 3, *words)[1]] == [True] * 3


# ---------------------------------------------------------------------------------------------------- compositions


def test_randperm_reshuffles_equal_keys(send: Send) -> None:
    """Among 200000 keys of 24 bits some are equal; their run is shuffled from the block of its start."""
    n = 200000
    _, keys = draw(send, 5, 0, "random_int", "int", n, 0, 2**24)
    stable = np.argsort(np.array(keys), kind="stable")
    offset, values = draw(send, 5, 0, "randperm", "long", n, 1)
    assert n // 4 + n == offset
    moved = np.flatnonzero(stable != np.array(values))
    assert 300 < len(moved) < 2400  # about n^2 / 2^25 pairs, half of them swapped
    start = int(moved[0])
    same = [int(i) for i in stable if keys[i] == keys[stable[start]]]
    assert len(same) == 2
    assert block(5, n // 4 + start)[0] % 2 == 0
    assert same[::-1] == values[start : start + 2]


WEIGHTS = [0.1, 2.0, 0.0, 1.0, 0.5, 7.25, 0.0, 3.0]


def test_multinomial_without_replacement_repeats_nothing(send: Send) -> None:
    """All categories of a row come once; those of weight zero last, in index order (ours)."""
    _, (_, *row) = draw(send, 6, 3, "multinomial", "float", 1, 8, 8, 0, *WEIGHTS)
    assert list(range(8)) == sorted(row)
    assert row[6:] == [2, 6]


def test_multinomial_compares_ratios_in_the_type_of_the_weights(send: Send) -> None:
    """Ratios are rounded to the weights' type; of equal ones the lower index comes first (ours)."""
    words = [1, 300, 300, 0, *[1.0] * 300]
    orders = {kind: draw(send, 6, 3, "multinomial", kind, *words) for kind in FLOATING}
    for kind, order in orders.items():
        assert expected(6, 3, "multinomial", kind, *words) == order
    assert orders["float"] != orders["bfloat"]


def test_multinomial_takes_the_first_place_that_reaches(send: Send) -> None:
    """With replacement a uniform equal to a running sum belongs to the category that ends there."""
    first = float(unit(block(0, 0)[0]))
    _, (_, *indices) = draw(send, 0, 0, "multinomial", "float", 1, 2, 2, 1, first, 1 - first)
    assert indices == [0, 0]
    _, (_, *indices) = draw(send, 0, 0, "multinomial", "float", 1, 2, 2, 1, first - 2**-24, 1 - first + 2**-24)
    assert indices == [1, 0]


@pytest.mark.parametrize("kind", ["float", "half"])
def test_multinomial_counts_rows_that_2_13_gets_wrong(send: Send, kind: str) -> None:
    """Where an exponential draw is zero, weight zero is not chosen and the row is counted (pytorch issue 192577)."""
    _, (zeros, chosen) = draw(send, 0, 1875345, "multinomial", kind, 1, 3, 1, 0, 0.0, 1.0, 1.0)
    assert zeros == 1
    assert chosen in (1, 2)
    assert draw(send, 0, 1875345, "multinomial", kind, 1, 3, 1, 0, 1.0, 1.0, 1.0)[1] == [1, 0]
