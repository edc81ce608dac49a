"""Launches of numbers at equal distances, by the kernels of torch 2.15."""

from __future__ import annotations

import pytest
import torch
from tests.described import declines, describe, launch_of

from anymps.kernels.launches import Launch


def _into(out: torch.Tensor, operator: str, **given: object) -> Launch:
    return launch_of(describe(operator, (out,), release=(2, 15), out=out, **given))


def test_numbers_between_two_ends() -> None:
    """The first, the step and the last; then how many, how far apart, and the first place."""
    launch = _into(torch.zeros(9), "linspace", start=-1, end=3, steps=9)
    assert (launch.kernel, launch.buffers[1:]) == ("linspace_float_i32", ([-1, 0.5, 3], [9, 1, 0]))
    launch = _into(torch.zeros(18)[::2], "linspace", start=-1, end=3, steps=9)
    assert launch.buffers[2] == [9, 2, 0]


def test_whole_numbers_between_two_ends() -> None:
    """Small ones go as float32; from 2²⁰ on as 64 bits, with the distance of two and what is left of all distances."""
    out = torch.zeros(4, dtype=torch.int32)
    launch = _into(out, "linspace", start=5, end=-6, steps=4)
    assert (launch.kernel, launch.buffers[1][::2]) == ("linspace_int_i32", [5, -6])
    launch = _into(out, "linspace", start=5, end=-(2**20), steps=4)
    assert launch.kernel == "linspace_integral_int_i32"
    assert launch.buffers[1] == [5, 2**64 - 2**20, 349_527, 0]
    assert _into(out, "linspace", start=5, end=2**20, steps=4).kernel == "linspace_integral_int_i32"
    assert _into(out, "linspace", start=5, end=2**20 - 1, steps=4).kernel == "linspace_int_i32"
    out = torch.zeros(4, dtype=torch.int16)
    assert _into(out, "linspace", start=5, end=-6, steps=4).kernel == "linspace_short_i32"
    assert declines("linspace", (out,), release=(2, 15), out=out, start=5, end=-6.5, steps=4)


def test_steps_are_divided_as_float32() -> None:
    """A third is the float32 next to it."""
    assert _into(torch.zeros(4), "linspace", start=0, end=1, steps=4).buffers[1] == [0, 0.3333333432674408, 1]


def test_many_whole_numbers() -> None:
    """More than float32 tells from one another."""
    out = torch.empty(2**24 + 1, dtype=torch.int32)
    assert _into(out, "linspace", start=0, end=5, steps=len(out)).kernel == "linspace_integral_int_i32"
    assert _into(out[1:], "linspace", start=0, end=5, steps=len(out) - 1).kernel == "linspace_int_i32"


@pytest.mark.parametrize("operator", ["linspace", "logspace"])
def test_numbers_into_a_matrix(operator: str) -> None:
    """Sizes and strides of the result, the innermost first."""
    launch = _into(torch.zeros(2, 3).t(), operator, start=0, end=10, steps=6, base=2.0)
    assert (launch.kernel, launch.threads) == (f"{operator}_strided_float", (6,))
    assert launch.buffers[1] == [0, 2, 10] + [2.0] * (operator == "logspace")
    assert launch.buffers[2:] == ([6, 0], 2, [2, 3], [3, 1])


def test_steps_into_a_matrix() -> None:
    """The first and the step, how the result lies, and its first place."""
    launch = _into(torch.zeros(2, 3).t(), "arange", start=1, end=13, step=2)
    assert (launch.kernel, launch.buffers[1:]) == ("arange_strided_float", ([1, 2], 2, [2, 3], [3, 1], 0))


def test_ends_that_need_no_kernel() -> None:
    """One number is a fill, and another count one that the host would resize to."""
    out = torch.zeros(1)
    assert declines("linspace", (out,), release=(2, 15), out=out, start=1, end=2, steps=1)
    assert declines("linspace", (out,), release=(2, 15), out=out, start=1, end=2, steps=2)
