"""How far two sketches are apart, and how much of that rounding explains."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from anymps.compare import Bound, Sketch, Value
from anymps.compare._distance import allowed, closest, distance, is_same, relative, roundoff
from compare_traces import EXACT, sketch

ONE = sketch([1.0, -2.0, 3.0])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        *(("float64", 2**-53), ("complex128", 2**-53), ("float32", 2**-24), ("complex64", 2**-24)),
        *(("float16", 2**-11), ("complex32", 2**-11), ("bfloat16", 2**-8)),
        *(("float8_e4m3fn", 2**-4), ("float8_e5m2", 2**-4), ("int64", 0), ("bool", 0)),
    ],
)
def test_roundoff(dtype: str, expected: float) -> None:
    """Half the distance from 1 to the next number; integers are not rounded."""
    assert roundoff(dtype) == expected


def test_the_same_bytes() -> None:
    """Dtype and digest, in any shape."""
    assert is_same(ONE, ONE)
    assert is_same(ONE, replace(ONE, shape=(3, 1)))
    for other in (replace(ONE, dtype="float16"), replace(ONE, digest="other")):
        assert not is_same(ONE, other)


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        (ONE, 0.0),
        (replace(ONE, dtype="float16"), 0.0),  # the same numbers
        (replace(ONE, dtype="bfloat16", low=-2.5), 0.5),  # the same digest means the same numbers in one dtype alone
        (replace(ONE, dtype="int64", low=-2.5), 0.5),
        (replace(ONE, digest="other"), 0.0),  # a difference that no kept number shows
        (replace(ONE, digest="other", low=-2.5), 0.5),
        (replace(ONE, digest="other", high=3.25), 0.25),
        (replace(ONE, digest="other", total=5.0), 1.0),  # of the means
        (replace(ONE, digest="other", elements=(1.0, -2.0, 3.125)), 0.125),
        (replace(ONE, digest="other", low=-2.5, high=3.25, elements=(1.0, -2.0, 3.125)), 0.5),
        (replace(ONE, digest="other", elements=(1.0, -2.0, math.inf)), math.inf),
        (replace(ONE, digest="other", elements=(1.0, -2.0, math.nan)), math.inf),
        *((replace(ONE, **{name: value}), math.inf) for name, value in (("shape", (1,)), ("nans", 1))),
        (replace(ONE, infinities=1), math.inf),
    ],
)
def test_how_far_apart(other: Sketch, apart: float) -> None:
    """The largest difference that the kept numbers show, either way round."""
    assert distance(ONE, other) == pytest.approx(apart, abs=1e-12)
    assert distance(other, ONE) == pytest.approx(apart, abs=1e-12)
    assert relative(ONE, other) == pytest.approx(apart / max(ONE.size, other.size), abs=1e-12)


def test_sums_are_rounded_themselves() -> None:
    """A difference of two sums that float64 explains is none."""
    large = replace(ONE, digest="other", total=ONE.total + 2.0**-48 * 3 * 3.0)
    assert distance(ONE, large) == 0.0
    twice = replace(ONE, digest="other", total=ONE.total + 2.0**-48 * 3 * 3.0 * 2)
    assert distance(ONE, twice) == pytest.approx(2.0**-48 * 3.0, rel=1e-2, abs=0.0)
    assert distance(ONE, replace(large, total=large.total + 3e-10)) == pytest.approx(1e-10, rel=1e-3)


def test_elements_that_are_equal_and_none() -> None:
    """Two NaN are no difference, nor are empty tensors; zeros have no size to compare with."""
    nan = replace(ONE, elements=(math.nan, -2.0, 3.0))
    assert distance(nan, replace(nan, digest="other")) == 0.0
    empty = Sketch("float32", (0,), "one")
    assert distance(empty, replace(empty, digest="other")) == 0.0
    zero = sketch([0.0])
    assert relative(zero, replace(zero, digest="other")) == 0.0
    assert relative(zero, replace(zero, digest="other", elements=(math.nan,))) == math.inf


WIDE = {"limit": 1.0, "least": 0.0}
"""PyTorch's own tests would allow anything."""
A, B = sketch([3.0, -4.0]), sketch([1.0, 1.0])
"""Root mean squares of 12.5 ** 0.5 and 1, sizes of 4 and 1."""


@pytest.mark.parametrize(
    ("name", "bound", "inputs", "expected"),
    [
        ("gather", EXACT, [A, B], 0.0),
        ("erfc", Bound("tested", limit=1e-3, least=1e-4), [A, B], 2 * (1e-3 * 3 + 1e-4)),
        ("exp", Bound("function", 1e-6, 1e-8, **WIDE), [A, B], 2 * (1e-6 * 3 + 1e-8)),
        ("sin", Bound("function", 1e-6, 1e-8, of_input=True, **WIDE), [A, B], 2 * (1e-6 * 4 + 1e-8)),
        ("sin", Bound("function", 1e-6, 1e-8, of_input=True, **WIDE), [B], 2 * (1e-6 * 3 + 1e-8)),
        # Sums: of elements of the input with the largest numbers, or of products of two inputs.
        ("sum", Bound("sum", 1e-6, 1e-8, 100, **WIDE), [B, A], 2 * (1e-6 * 100 * 12.5**0.5 + 1e-8)),
        ("mm", Bound("sum", 1e-6, 1e-8, 100, **WIDE), [B, A, B], 2 * (1e-6 * 100 * 12.5**0.5 + 1e-8)),
        ("mm", Bound("sum", 1e-6, 1e-8, 100, **WIDE), [A, A, B], 2 * (1e-6 * 100 * 12.5 + 1e-8)),
        ("sdp_attention", Bound("sum", 1e-6, 1e-8, 100, **WIDE), [A, A], 2 * (1e-6 * 100 * 12.5 + 1e-8)),
        ("mm", Bound("sum", 1e-6, 1e-8, 100, **WIDE), [A], 2 * (1e-6 * 100 * 12.5**0.5 + 1e-8)),
        ("sum", Bound("sum", 1e-6, 1e-8, 100, **WIDE), [sketch([9.0], "int64")], 2 * (1e-6 * 3 + 1e-8)),
        ("sum", Bound("sum", 1e-6, 1e-8, 1, **WIDE), [B], 2 * (1e-6 * 3 + 1e-8)),
        # Never more than twice what PyTorch's own tests allow.
        ("mm", Bound("sum", 1e-2, 1e-8, 100, limit=1e-4, least=1e-5), [A, A], 2 * (1e-4 * 3 + 1e-5)),
    ],
)
def test_what_rounding_explains(name: str, bound: Bound, inputs: list[Sketch], expected: float) -> None:
    """Twice the bound of one result whose largest number is 3."""
    assert allowed(name, bound, inputs, ONE, sketch([2.0])) == pytest.approx(expected, rel=1e-12)
    assert allowed(name, bound, inputs, sketch([2.0]), ONE) == pytest.approx(expected, rel=1e-12)


def test_tensors_that_correspond() -> None:
    """The same bytes first, then the nearest with as many elements; the others have no partner."""
    near, far, other = sketch([1.0, -2.0, 3.5]), sketch([9.0, 9.0, 9.0]), sketch([5.0])
    left = [Value(it) for it in (sketch([1.0, -2.0, 3.25]), ONE, other)]
    right = [Value(it) for it in (far, near, ONE)]
    assert list(closest(left, right)) == [(ONE, ONE), (left[0].sketch, near)]
    assert list(closest(left[:1], [])) == []
