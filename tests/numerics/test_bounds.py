"""How far a computed number may lie from the exact one."""

from __future__ import annotations

import math

import pytest
import torch

from anymps.numerics import Bound, Kind, _terms, bound_of, unit_roundoff

U = 2.0**-24


def test_unit_roundoff() -> None:
    assert unit_roundoff(torch.float32) == U
    assert unit_roundoff(torch.complex64) == U
    assert unit_roundoff(torch.float16) == 2.0**-11
    assert unit_roundoff(torch.bfloat16) == 2.0**-8


@pytest.mark.parametrize(
    ("operator", "shapes", "result", "terms"),
    [
        ("aten::mm", [(3, 64), (64, 5)], (3, 5), 64),
        ("aten::addmm", [(5,), (3, 64), (64, 5)], (3, 5), 64),
        ("aten::baddbmm", [(2, 3, 5), (2, 3, 7), (2, 7, 5)], (2, 3, 5), 7),
        ("aten::linear", [(8, 9, 128), (4, 128), (4,)], (8, 9, 4), 128),
        ("aten::sum.dim_IntList", [(3, 100)], (3,), 100),
        ("aten::mean", [(3, 100)], (), 300),
        ("aten::cumsum_", [(3, 100)], (3, 100), 100),
        ("aten::convolution", [(1, 16, 8, 8), (32, 16, 3, 3), (32,)], (1, 32, 6, 6), 288),
        ("aten::convolution_backward", [(2, 32, 6, 6), (2, 16, 8, 8), (32, 16, 3, 3)], (32, 16, 3, 3), 72),
        ("aten::convolution_backward", [(2, 32, 6, 6), (2, 16, 8, 8), (32, 16, 3, 3)], (2, 16, 8, 8), 288),
        ("aten::_scaled_dot_product_attention_math_for_mps", [(1, 2, 7, 64), (1, 2, 9, 64)], (1, 2, 7, 64), 73),
        ("aten::scaled_dot_product_attention", [(7, 64), (9, 64)], (7, 64), 73),
        ("aten::scaled_dot_product_attention", [(7, 64), (9,)], (7, 64), 448),
        ("aten::scaled_dot_product_attention", [(), (9, 64)], (7, 64), 576),
        ("aten::scaled_dot_product_attention", [(7, 64)], (7, 64), 448),
        ("aten::embedding_dense_backward", [(4, 8, 32), (4, 8)], (100, 32), 1024),
        ("aten::addmv", [(5,), (5, 7), (7,)], (5,), 7),
        ("aten::addmm", [(64, 5)], (3, 5), 1),  # too few shapes to tell
        ("aten::mv", [()], (), 1),
        ("aten::var", [(6, 5), (2,)], (5,), 6),
        ("aten::sum", [(3,)], (5, 2), 1),
        ("aten::_softmax", [(3, 100, 7)], (3, 100, 7), 100),
        ("aten::convolution", [(1, 16, 8, 8), (8, 16, 3, 3)], (1, 8, 6, 6), 144),
        ("aten::convolution", [(1, 16, 8, 8), (8, 4), (3,)], (1, 8, 6, 6), 8),
        ("aten::convolution", [(1, 16, 8, 8), (4,)], (1, 8, 6, 6), 1024),
        ("aten::convolution", [(1, 16, 8, 8)], (1, 8, 6, 6), 1024),
        ("aten::convolution_backward", [(2, 32, 6, 6), (2, 16, 8, 8)], (2, 16, 8, 8), 2304),
        ("aten::convolution_backward", [(2, 32, 6, 6), (2, 16, 8, 8), (5,)], (2, 16, 8, 8), 2304),
        ("aten::convolution_backward", [(9,), (2, 16, 8, 8), (5, 3)], (5, 3), 9),
        ("aten::convolution_backward", [(2, 32, 6, 6), (2, 16, 8, 8), (32, 16, 3, 3)], (32,), 72),
        ("aten::native_batch_norm", [(8, 3, 5, 5), (3,)], (8, 3, 5, 5), 200),
        ("aten::native_batch_norm", [(8,)], (8,), 8),
        ("aten::native_batch_norm", [], (), 1),
        ("aten::native_layer_norm", [(8, 3, 5), (5,)], (8, 3, 5), 15),
        ("aten::native_layer_norm", [], (), 1),
        ("aten::einsum", [(2, 9), (4, 3)], (), 9),
        ("aten::scatter_add", [(2, 9), (4, 3)], (), 18),
        ("aten::prod", [(0, 3)], (3,), 1),
        ("aten::sum", [(3, 4), (2,)], (0,), 12),
        ("aten::convolution", [(1, 4), (5, 6, 7)], (), 42),
        ("aten::convolution", [(1, 4), (6, 5, 7)], (), 42),
        ("aten::convolution_backward", [(2, 32, 6), (2, 16, 8), (16, 32, 3)], (2, 16, 8), 96),
        ("aten::convolution_backward", [(0, 32, 6), (2, 16, 8), (16, 32, 3)], (16, 32, 3), 1),
        ("aten::scaled_dot_product_attention", [(5,), (7, 3)], (), 12),
        ("aten::native_batch_norm", [(8, 0, 5)], (), 1),
        ("aten::native_group_norm", [(8, 2, 3)], (), 6),
    ],
)
def test_sums_are_as_long_as_the_shapes_say(
    operator: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], terms: int
) -> None:
    """At least one; of shapes that do not fit, as long as anything could be."""
    bound = bound_of(operator, torch.float32, shapes, result)
    assert bound.kind is Kind.SUM
    assert bound.terms == terms
    n = terms + 2
    assert bound.relative == pytest.approx(min(n * U / (1 - n * U), 3e-5), rel=1e-12)


@pytest.mark.parametrize("operator", sorted(_terms._BY_NAME))
def test_a_sum_of_unknown_length_has_a_bound(operator: str) -> None:
    """Who compares two devices' answers has no shapes."""
    assert bound_of(operator, torch.float32).kind is Kind.SUM


def test_a_long_sum_may_be_no_further_off_than_pytorchs_own_tests_allow() -> None:
    assert bound_of("aten::sum", torch.float32, [(10**7,)]).relative == 3e-5
    assert bound_of("aten::mm", torch.bfloat16, [(1, 4096), (4096, 1)], (1, 1)).relative == 1e-1


@pytest.mark.parametrize("operator", ["aten::abs", "aten::gather", "aten::eq.Scalar", "aten::max_pool2d", "aten::cat"])
def test_numbers_that_are_placed_or_chosen_are_exact(operator: str) -> None:
    bound = bound_of(operator, torch.float32)
    assert bound.kind is Kind.EXACT
    assert bound.allowed(torch.ones(2, dtype=torch.float64)).tolist() == [0.0, 0.0]
    assert bound.words == "exact"


def test_integers_are_exact_whatever_computes_them() -> None:
    assert bound_of("aten::sum", torch.int64, [(100,)]).kind is Kind.EXACT
    assert bound_of("aten::exp", torch.bool).kind is Kind.EXACT


def test_functions_have_the_units_of_metals_specification() -> None:
    assert bound_of("aten::exp", torch.float32).words == "4.5 ulp of float32"
    assert bound_of("aten::exp_", torch.float32, mpsgraph=True).words == "8.5 ulp of float32"
    assert bound_of("aten::mul.Tensor", torch.float16).words == "1 ulp of float16"
    assert bound_of("aten::abs", torch.complex64).kind is Kind.FUNCTION


def test_an_unknown_operator_has_the_tolerance_of_pytorchs_tests() -> None:
    bound = bound_of("aten::_cdist_forward", torch.float32, [(3, 4), (5, 4)], (3, 5))
    assert (bound.kind, bound.relative, bound.absolute) == (Kind.TESTED, 3e-5, 1e-4)
    assert bound.words == "relative 3e-05 plus absolute 0.0001, as in PyTorch's own MPS tests"


def test_a_bound_is_taken_of_the_sum_of_the_absolute_values() -> None:
    bound = bound_of("aten::sum", torch.float32, [(1000,)])
    cancelled = torch.tensor([1e-3], dtype=torch.float64)
    assert bound.allowed(cancelled, torch.tensor([1000.0])).item() == pytest.approx(1000 * bound.relative)
    assert bound.allowed(cancelled).item() == pytest.approx(1e-3 * bound.relative)


def test_two_computed_results_may_be_twice_as_far_apart() -> None:
    """In the result's own share and near 0; all else is that of one."""
    one = Bound(Kind.FUNCTION, torch.float16, 3e-3, 4e-5, 7, True, "somewhere")
    assert one.of_two() == Bound(Kind.FUNCTION, torch.float16, 6e-3, 8e-5, 7, True, "somewhere")


@pytest.mark.parametrize(
    ("operator", "dtype", "shapes", "absolute"),
    [
        # A unit roundoff for each term, one each for the product and the result, and eight of `exp`.
        ("aten::_log_softmax", torch.float32, [(2, 10)], 20 * U / (1 - 20 * U)),
        ("aten::logsumexp", torch.float16, [(2, 10)], 30 * 2**-11 / (1 - 30 * 2**-11)),
        ("aten::logsumexp", torch.float32, [(10**7,)], 1e-4),  # PyTorch's own tests allow no more
        ("aten::_softmax", torch.float32, [(2, 10)], 0.0),
    ],
)
def test_near_zero(operator: str, dtype: torch.dtype, shapes: list[tuple[int, ...]], absolute: float) -> None:
    """The logarithm of a sum may be off by as much as the sum is by its share; others by a subnormal number."""
    tiny = torch.finfo(dtype).tiny
    assert bound_of(operator, dtype, shapes).absolute == pytest.approx(tiny + absolute, rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "relative", "absolute"),
    [(torch.float32, 3e-5, 1e-4), (torch.complex64, 3e-5, 1e-4)],
)
def test_a_tested_bound_shrinks_with_the_result(dtype: torch.dtype, relative: float, absolute: float) -> None:
    """The absolute tolerance is meant for numbers of about one: of smaller results it is as much smaller."""
    bound = bound_of("aten::_cdist_forward", dtype)
    allowed = bound.allowed(torch.tensor([0.5, 0.1, math.inf], dtype=torch.float64))
    assert allowed.tolist() == pytest.approx(
        [0.5 * relative + 0.5 * absolute, 0.1 * relative + 0.5 * absolute, math.inf]
    )
    assert bound.allowed(torch.tensor([9.0], dtype=torch.float64)).item() == pytest.approx(9 * relative + absolute)
    assert bound.absolute_beside(0.25) == absolute / 4
    assert bound.absolute_beside(4.0) == absolute


def test_random_sums_in_any_order_stay_within_the_bound() -> None:
    generator = torch.Generator().manual_seed(0)
    for terms in (7, 1000, 30_000):
        numbers = torch.randn(terms, generator=generator)
        exact = numbers.double().sum()
        bound = bound_of("aten::sum", torch.float32, [(terms,)])
        allowed = bound.allowed(exact, numbers.abs().double().sum()).item()
        for order in (numbers, numbers.flip(0), numbers.sort().values):
            computed = order.cumsum(0)[-1]  # one after the other, the longest chain of roundings
            assert math.fabs(computed.item() - exact.item()) <= allowed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_logarithm_of_a_sum_is_off_by_the_relative_error_of_the_sum(dtype: torch.dtype) -> None:
    """Also where it is nearly 0: the textbook's log_softmax stays within the bound, unlike in the bound of a sum."""
    torch.manual_seed(0)
    x = (20 * torch.randn(2000, 10)).to(dtype)
    shifted = x - x.amax(1, keepdim=True)
    found = (shifted - shifted.exp().sum(1, keepdim=True).log()).double()
    exact = torch.log_softmax(x.double(), 1)
    # The inputs' own roundings, of differences as large as these, are for what calls the bound to add.
    near = exact.abs() < 0.01
    bound = bound_of("aten::_log_softmax", dtype, [(2000, 10)], (2000, 10))
    allowed = bound.allowed(exact)
    assert near.sum() > 500
    assert bool(((found - exact).abs() <= allowed)[near].all())
    if dtype is torch.float32:
        own = bound_of("aten::cumsum", dtype, [(2000, 10)], (2000, 10)).allowed(exact)
        assert not bool(((found - exact).abs() <= own)[near].all())
        assert float(allowed[near].max()) < 2e-4
