"""Two results under a bound: which elements are wrong, and how loud."""

from __future__ import annotations

import math

import pytest
import torch

from anymps.numerics import Bound, Difference, Kind, Loudness, bound_of, differences, widened
from anymps.numerics._differences import Unsettled

EXP = bound_of("aten::exp", torch.float32)
EXACT = bound_of("aten::abs", torch.float32)


def wide(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def narrow(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def told(expected: torch.Tensor, found: torch.Tensor, bound: Bound) -> Difference:
    """The difference that there is."""
    difference = differences(expected, found, bound)
    assert difference is not None
    return difference


def test_rounding_is_no_difference() -> None:
    numbers = torch.linspace(-50, 50, 1001)
    assert differences(widened(numbers).exp(), numbers.exp(), EXP) is None


def test_the_worst_element_is_told_with_its_place_and_both_numbers() -> None:
    expected = wide(*range(1, 7)).reshape(2, 3)
    found = expected.float()
    found[0, 1] = 2.001
    found[1, 2] = 7.0
    difference = told(expected, found, EXP)
    assert (difference.index, difference.expected, difference.found) == ((1, 2), 6.0, 7.0)
    assert (difference.wrong, difference.count, difference.share) == (2, 6, 2 / 6)
    assert difference.loudness is Loudness.NUMBER


@pytest.mark.parametrize(("expected", "found"), [(1.0, math.nan), (1.0, math.inf), (math.nan, 1.0), (math.inf, 1.0)])
def test_what_is_not_finite_on_one_side_alone_is_loudest(expected: float, found: float) -> None:
    difference = told(wide(2.0, expected), narrow(3.0, found), EXP)
    assert difference.loudness is Loudness.NOT_FINITE
    assert (difference.index, difference.wrong) == ((1,), 1)


def test_infinities_of_other_signs_differ() -> None:
    difference = told(wide(math.inf), narrow(-math.inf), EXP)
    assert difference.loudness is Loudness.NOT_FINITE


def test_nan_is_nan_and_infinity_is_what_is_too_large() -> None:
    assert differences(wide(math.nan, math.inf, 1e39), narrow(math.nan, math.inf, math.inf), EXP) is None


def test_near_the_largest_number_either_side_may_run_over() -> None:
    largest = torch.finfo(torch.float32).max
    assert differences(wide(largest), narrow(math.inf), EXP) is None
    assert differences(wide(largest * (1 + 2**-24)), narrow(largest), EXP) is None
    assert differences(wide(largest / 8), narrow(math.inf), EXP) is not None
    below = torch.nextafter(narrow(largest), narrow(0.0))
    assert differences(wide(largest * (1 + 2**-23)), below, EXP) is None
    assert differences(wide(-largest * (1 + 2**-23)), -below, EXP) is None
    assert differences(wide(largest * (1 + 2**-23)), narrow(1.0), EXP) is not None
    assert differences(wide(largest), narrow(math.nan), EXP) is not None


def test_zero_for_a_subnormal_number_is_quieter_than_a_wrong_number() -> None:
    difference = told(wide(1e-40, 1.0), narrow(0.0, 1.0), EXACT)
    assert (difference.loudness, difference.wrong) == (Loudness.FLUSHED, 1)
    difference = told(wide(1e-40, 1.0), narrow(0.0, 2.0), EXACT)
    assert (difference.loudness, difference.index) == (Loudness.NUMBER, (1,))


def test_integers_and_truth_values_are_exact() -> None:
    difference = told(torch.tensor([2**53 + 1, 5]), torch.tensor([2**53, 5]), EXACT)
    assert (difference.expected, difference.found) == (2**53 + 1, 2**53)
    assert differences(torch.tensor([True]), torch.tensor([True]), EXACT) is None


def test_an_allowance_is_added_to_the_bound() -> None:
    assert differences(wide(1.0), narrow(1.1), EXP) is not None
    assert differences(wide(1.0), narrow(1.1), EXP, allowance=wide(0.2)) is None


def test_a_number_and_an_empty_result() -> None:
    assert differences(wide(), narrow(), EXP) is None
    difference = told(torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0), EXP)
    assert difference.index == ()


def test_complex_numbers() -> None:
    bound = bound_of("aten::exp", torch.complex64)
    numbers = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64)
    assert differences(widened(numbers).exp(), numbers.exp(), bound) is None
    difference = told(widened(numbers), torch.tensor([1 + 2j, 0j], dtype=torch.complex64), bound)
    assert (difference.index, difference.expected, difference.found) == ((1,), 3 - 1j, 0j)


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"sizes \(2,\) and \(3,\) differ"):
        differences(torch.ones(2), torch.ones(3), EXP)


@pytest.mark.parametrize("place", [0, 70_000, 200_000])
@pytest.mark.parametrize("number", [3.01, math.inf, math.nan])
def test_one_wrong_number_among_many_is_found(place: int, number: float) -> None:
    """A long result is looked at piece by piece: in each of them, and in the last, which is shorter."""
    expected = torch.full((200_001,), 3.0, dtype=torch.float64)
    found = expected.float()
    found[place] = number
    difference = told(expected, found, EXP)
    assert (difference.index, difference.wrong, difference.count) == ((place,), 1, 200_001)


def test_what_the_bound_leaves_open_is_settled_by_more() -> None:
    """By the sums of the terms, or by how far the result moves; each element by its own."""
    bound = bound_of("aten::sum", torch.float32, [(1000,)], ())
    expected = wide(1.0, 0.0, math.inf)
    for found, scale, allowance, settled in (
        (narrow(1.0, 1e-6, math.inf), wide(1.0, 1.0, 1.0), None, False),  # infinity is left
        (narrow(1.0, 1e-6, 0.0), None, wide(1.0, 1.0, 1.0), False),
    ):
        assert Unsettled(expected, found, bound).settle(scale, allowance) is settled
    for found, scale, allowance, settled in (
        (narrow(1.0, 1e-6), wide(1.0, 1.0), None, True),
        (narrow(1.0, 1e-6), wide(1.0, 1e-9), None, False),
        (narrow(1.0, 1e-6), wide(1.0, -1.0), None, True),
        (narrow(1.0, 1e-6), None, wide(0.0, 1e-5), True),
        (narrow(1.0, 1e-6), None, wide(1e-5, 0.0), False),
        (narrow(1.1, 1e-6), wide(1.0, 1.0), wide(0.0, 1.0), False),
        (narrow(1.1, 1e-6), wide(1.0, 1.0), wide(0.2, 0.0), True),
    ):
        unsettled = Unsettled(expected[:2], found, bound)
        assert unsettled
        assert unsettled.settle(scale, allowance) is settled
    assert not Unsettled(expected, narrow(1.0, 0.0, math.nan)[:3], EXACT).settle(wide(9.0, 9.0, 9.0))


def test_what_was_settled_with_an_allowance_stays_open_without_it() -> None:
    """The sums of the terms settle for good; how far a result moves is asked anew each time."""
    bound = Bound(Kind.SUM, torch.float32, 1e-6, 0.0, 1, False, "")
    for scale in (None, wide(1.0, 1.0)):
        unsettled = Unsettled(wide(1.0, 2.0), narrow(1.1, 2.1), bound)
        assert unsettled.settle(scale, wide(1.0, 1.0))
        assert not unsettled.settle(scale, wide(0.0, 1.0))
        assert not unsettled.settle(scale)
    unsettled = Unsettled(wide(1.0, 2.0), narrow(1.1, 2.1), bound)
    assert not unsettled.settle(wide(1e6, 1.0))
    assert unsettled.settle(None, wide(0.0, 1.0))


def test_equal_numbers_leave_nothing_open() -> None:
    """Infinity is equal to itself where a result must be exact."""
    assert not Unsettled(wide(1.0, -math.inf), narrow(1.0, -math.inf), EXACT)
    assert not Unsettled(torch.tensor([3, 2**60]), torch.tensor([3, 2**60]), EXACT)
    assert Unsettled(wide(1.0, math.nan), narrow(1.0, math.nan), EXACT)
