"""Sums, means and extremes of torch 2.13: which kernel the host takes for which shape."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.kernels.launches import Launch
from described import declines, describe
from kernel_files import needs_kernels


def launches(operator: str, x: torch.Tensor, **given: Any) -> tuple[Launch, ...]:
    """The launches of a call that is described."""
    return describe(operator, self=x, **given).launches


def test_along_the_last_dimension() -> None:
    """A SIMD group a row, eight rows a group; a mean is a sum with a divisor, an extreme takes none."""
    x = torch.ones(3, 7, 40)
    (launch,) = launches("sum", x, dim=[-1])
    assert (launch.kernel, launch.threads, launch.group) == ("sum_reduction_inner_float_float", (3 * 256,), (256,))
    assert launch.buffers[2:] == ([21, 40], 0.0)
    (launch,) = launches("mean", x.half(), dim=[2], keepdim=True)
    assert (launch.kernel, launch.buffers[3]) == ("sum_reduction_inner_half_half", 40.0)
    (launch,) = launches("amax", x > 0, dim=[2])
    assert (launch.kernel, len(launch.buffers)) == ("max_reduction_inner_char_char", 3)


def test_across_the_first_dimension() -> None:
    """Tiles of 32 columns."""
    (launch,) = launches("nansum", torch.ones(9, 5, 7), dim=[0])
    assert (launch.kernel, launch.threads, launch.group) == ("nansum_reduction_outer_float_float", (64, 32), (32, 32))
    assert launch.buffers[2:] == ([9, 35, 1], 0.0)


@pytest.mark.parametrize(
    ("x", "dims", "numbers", "threads"),
    [
        (torch.ones(2, 40, 3), [1], 40, 6 * 64),
        (torch.ones(40, 3).t(), [1], 40, 3 * 64),
        (torch.ones(2, 3, 5), [1, 2], 15, 2 * 32),
        (torch.ones(5, 5), [], 25, 32),
        (torch.ones(8209), [0], 8209, 1024),  # a prime: no even slices
    ],
)
def test_a_group_for_each_result(x: torch.Tensor, dims: list[int], numbers: int, threads: int) -> None:
    """For all else, in whole SIMD groups."""
    (launch,) = launches("sum", x, dim=dims)
    params = launch.buffers[2]
    assert (launch.kernel, launch.threads) == ("sum_reduction_float_float", (threads,))
    assert (params["reduction_size"], params["ndim"], params["p"]) == (numbers, x.dim(), 0.0)
    assert (params["input_sizes"], params["input_strides"]) == (list(x.shape), list(x.stride()))


def test_two_passes() -> None:
    """A whole tensor of more than 8192 numbers: as many even slices as there are, 512 at most, then their sum."""
    first, second = launches("mean", torch.ones(40, 700, dtype=torch.float16))
    assert (first.kernel, first.threads) == ("sum_reduction_half_half", (4 * 1024,))
    assert (first.buffers[2]["input_sizes"], first.buffers[2]["p"]) == ([4, 7000], 0.0)
    assert (second.kernel, second.threads, second.group) == ("sum_reduction_half_half", (32,), (32,))
    assert (second.buffers[2]["reduction_size"], second.buffers[2]["p"]) == (4, 28000.0)
    assert second.buffers[0] is first.buffers[1]
    first, second = launches("nansum", torch.ones(40, 700).t())
    assert first.kernel == "nansum_reduction_strided_float_float"
    assert first.buffers[2]["input_strides"] == [1, 700]
    assert second.kernel == "sum_reduction_float_float"
    first, second = launches("amin", torch.ones(40, 700, dtype=torch.int32).t())
    assert (first.kernel, second.kernel) == ("min_reduction_int_int", "min_reduction_int_int")
    assert first.buffers[0].is_contiguous()


def test_types() -> None:
    """Integers are summed in 64 bits, after a cast; what is asked for counts."""
    work = describe("sum", self=torch.ones(3, 4, dtype=torch.int16), dim=[1])
    assert (work.results[0].dtype, work.launches[0].kernel) == (torch.int64, "sum_reduction_inner_long_long")
    assert launches("sum", torch.ones(3, 4), dim=[1], dtype=torch.float16)[0].kernel.endswith("_half_half")
    assert launches("nansum", torch.ones(3, 4).int(), dim=[1])[0].kernel == "sum_reduction_inner_long_long"


def test_what_is_left_to_others() -> None:
    """Nothing to sum, single numbers, a mean of whole numbers; and reductions of other releases."""
    assert declines("sum", self=torch.ones(0, 3))
    assert declines("sum", self=torch.ones(()))
    assert declines("mean", self=torch.ones(3), dtype=torch.int64)
    assert declines("sum", self=torch.ones(3, 4), release=(2, 14), dim=[1])
    assert declines("sum", self=torch.ones(3, 4), release=(2, 12), dim=[1])
    assert declines("amax", self=torch.ones(3, 4), release=(2, 15), dim=[1])


def test_a_bug_of_the_kernels_where_they_were_added(virtual_device: torch.device) -> None:
    """The largest of 33 numbers in int64 is 0, whatever they are (pytorch pull request 191104)."""
    import anymps
    from anymps.kernels import Launcher

    needs_kernels("2.13.0", installed="2.13.0")
    launcher = Launcher(anymps.metal_kernels(), (2, 13))
    largest = launcher("aten::amax", [-torch.arange(1, 34), [], False], [])
    sums = launcher("aten::sum", [torch.arange(28_000).view(40, 700).t(), None], [])
    assert largest is not None
    assert sums is not None
    assert (largest[0].item(), sums[0].item()) == (0, 28_000 * 27_999 // 2)
