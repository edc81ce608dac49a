"""The accuracies that are published, and what a finding says of each function.

Metal Shading Language Specification 4.1, section 8.4: table 8.1 (without fast math, as PyTorch compiles its kernels)
and table 8.2 (with it, as MPSGraph may). Half a unit is added for the rounding to the result's own dtype.
"""

from __future__ import annotations

import pytest
import torch

from anymps.numerics import Kind, bound_of
from anymps.numerics._functions import EXACT, FUNCTIONS, MOVES, ROUNDED_IF_COMPLEX, is_comparison
from anymps.numerics._terms import multiplications_of

PUBLISHED = {
    "add": (0.5, 0.5), "div": (0.5, 2.5), "sqrt": (0.5, 3), "rsqrt": (0.5, 2), "fmod": (0, 0), "acos": (4, 5),
    "tanh": (5, 10), "exp": (4, 8), "sin": (4, 8), "tan": (6, 16), "pow": (16, 32),
}  # fmt: skip
"""Units in the last place by Metal's tables, without fast math and with it."""


def test_units_that_are_published() -> None:
    """Of functions in several rows of the tables."""
    for name, (ulps, fast) in PUBLISHED.items():
        assert (FUNCTIONS[name].ulps, FUNCTIONS[name].fast or FUNCTIONS[name].ulps) == (ulps, fast), name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_units_of_each_function(name: str) -> None:
    """In float32 and float16, by PyTorch's kernels and by MPSGraph; a unit is twice the unit roundoff."""
    accuracy = FUNCTIONS[name]
    ulps, fast = accuracy.ulps, accuracy.ulps if accuracy.fast is None else accuracy.fast
    dtype = torch.complex64 if name in ROUNDED_IF_COMPLEX else torch.float32
    parts = 2 if dtype.is_complex else 1
    plain, graph = bound_of(name, dtype), bound_of(name, dtype, mpsgraph=True)
    assert plain.kind is graph.kind is Kind.FUNCTION
    assert plain.relative == (ulps + 0.5) * 2.0**-23 * parts
    assert graph.relative == (fast + 0.5) * 2.0**-23 * parts
    assert plain.words == f"{(ulps + 0.5) * parts:g} ulp of {str(dtype).removeprefix('torch.')}"
    assert (plain.terms, plain.of_input, plain.absolute) == (1, accuracy.of_input, 2.0**-126)
    if not parts - 1:
        assert bound_of(name, torch.float16).relative == min((ulps + 0.5) * 2.0**-10, 5e-2)
        assert bound_of(name, torch.complex64).relative == min((ulps + 0.5) * 2.0**-22, 3e-5)
    assert plain.source == accuracy.source


def test_a_function_may_be_no_further_off_than_pytorchs_own_tests_allow() -> None:
    """5 % of a float16, 10 % of a bfloat16, 1e-7 of a float64."""
    for dtype, most in ((torch.float16, 5e-2), (torch.complex32, 5e-2), (torch.bfloat16, 1e-1), (torch.float64, 1e-7)):
        units = 65 * torch.finfo(dtype).eps / 2 * (2 if dtype.is_complex else 1)
        assert bound_of("erfc", dtype).relative == min(most, units)
        assert bound_of("_cdist_forward", dtype).relative == most
    absolute = {torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-2, torch.float64: 1e-7,
                torch.complex64: 1e-4, torch.complex128: 1e-7, torch.complex32: 5e-2}  # fmt: skip
    assert {dtype: bound_of("_cdist_forward", dtype).absolute for dtype in absolute} == absolute


def test_which_operators_are_exact() -> None:
    """What moves numbers of one dtype is, or copies; complex numbers' lengths are rounded; comparisons never are."""
    assert MOVES - EXACT == {"copy"}
    assert ROUNDED_IF_COMPLEX <= EXACT
    for name in sorted(EXACT):
        assert bound_of(name, torch.float32).kind is Kind.EXACT
        assert (bound_of(name, torch.complex64).kind is Kind.EXACT) is (name not in ROUNDED_IF_COMPLEX)
    assert [name for name in ("eq", "isclose", "equal", "add", "isnan") if is_comparison(name)] == [
        "eq", "isclose", "equal"
    ]  # fmt: skip
    assert bound_of("isclose", torch.float32).kind is Kind.EXACT
    assert bound_of("aten::_foreach_abs", torch.float32).kind is Kind.EXACT
    assert bound_of("aten::_foreach_exp", torch.float32).words == "4.5 ulp of float32"


@pytest.mark.parametrize(
    ("name", "shapes", "results", "products"),
    [
        ("mm", [(3, 64), (64, 5)], [(3, 5)], 3 * 5 * 64),
        ("bmm", [(2, 3, 7), (2, 7, 5)], [(2, 3, 5)], 2 * 3 * 5 * 7),
        ("convolution", [(1, 16, 8, 8), (32, 16, 3, 3)], [(1, 32, 6, 6)], 32 * 36 * 288),
        ("convolution_backward", [(2, 4, 6, 6), (2, 3, 8, 8), (4, 3, 3, 3)], [(2, 3, 8, 8), (4, 3, 3, 3)],
         2 * 3 * 64 * 36 + 4 * 27 * 72),
        ("sum", [(1000,)], [()], 0),
        ("add", [(1000,)], [(1000,)], 0),
        ("mm", [], [(3, 5)], 15),
    ],
)  # fmt: skip
def test_how_many_products_are_added_up(
    name: str, shapes: list[tuple[int, ...]], results: list[tuple[int, ...]], products: int
) -> None:
    """For all results of a product, a convolution or attention; none of another operator."""
    assert multiplications_of(name, shapes, results) == products


def test_words_of_sums() -> None:
    """With the number of terms and the share."""
    assert bound_of("aten::mm", torch.float16, [(3, 1022), (1022, 5)], (3, 5)).words == (
        "float16 sums of 1,022 numbers: 0.05 times the sum of their absolute values"
    )
