"""Launches of PyTorch's own kernels that go along a dimension, look up places, or take windows and groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.kernels import Launcher
from anymps.kernels.launches import DESCRIBED
from described import declines, describe


@pytest.mark.parametrize(
    ("shape", "dim", "kernel", "places", "threads"),
    [
        ((5, 300), -1, "cumsum_innermost_float", (300,), (96, 5, 1)),
        ((5, 6000), 1, "cumsum_innermost_float", (6000,), (768, 5, 1)),
        ((5, 9000), 1, "cumsum_innermost_float", (9000,), (1024, 5, 1)),
        ((4, 7, 40), 1, "cumsum_outer_float", (7, 40, 2), (256, 8, 1)),
    ],
)
def test_scans(
    shape: tuple[int, ...], dim: int, kernel: str, places: tuple[int, ...], threads: tuple[int, ...]
) -> None:
    """Four numbers a thread along rows, which loop when they are long; across rows 32 neighbours a group."""
    (launch,) = describe("cumsum", self=torch.ones(shape), dim=dim).launches
    assert (launch.kernel, launch.buffers[2:], launch.threads) == (kernel, places, threads)
    assert launch.group == (threads[0], 1, 1)


def test_scans_of_integers() -> None:
    """They are summed in 64 bits, two a thread; of 32 bits the kernel widens itself, of others the host does."""
    for dtype, kernel in ((torch.int32, "cumsum_innermost_int_long"), (torch.int16, "cumsum_innermost_long")):
        work = describe("cumsum", self=torch.ones(2, 70, dtype=dtype), dim=1)
        assert work.results[0].dtype == torch.int64
        assert (work.launches[0].kernel, work.launches[0].threads) == (kernel, (64, 2, 1))


def test_scans_that_are_left_to_others() -> None:
    """Those of what lies otherwise."""
    assert declines("cumsum", self=torch.ones(3, 3).t(), dim=1)


def test_scattering() -> None:
    """Into a copy, or in place; dense or by strides. What is only copied, and extremes, are the CPU's."""
    x, index = torch.ones(2, 5), torch.zeros(2, 4, dtype=torch.int64)
    source = torch.ones(2, 4)
    assert declines("scatter", self=x, dim=1, index=index, src=source)
    assert declines("scatter", self=x, dim=1, index=index, value=2)
    work = describe("scatter", self=x, dim=1, index=index, src=source, reduce="add")
    assert (work.launches[0].kernel, work.launches[0].buffers[3:]) == ("scatter_add_dense_float_long", (1, 4, 5, 0))
    assert work.results[0] is not x
    assert describe("scatter_add", written=(x,), self=x, dim=1, index=index, src=source).results[0] is x
    given = {"dim": 1, "index": index, "include_self": True}
    work = describe("scatter_reduce", self=x, src=source, reduce="prod", **given)
    assert work.launches[0].kernel == "scatter_prod_dense_float_long"
    wide = torch.ones(3, 5)
    work = describe("scatter_reduce", self=wide, src=source, reduce="sum", **given)
    (launch,) = work.launches
    assert (launch.kernel, launch.errors) == ("scatter_add_strided_float_long", 10)
    assert launch.buffers[3:] == ([2, 4], (5, 1), (4, 1), (4, 1), [2, 1, 0], 5, 0)
    for reduce in ("amax", "mean"):
        assert declines("scatter_reduce", self=x, src=source, reduce=reduce, **given)


@pytest.mark.parametrize("by_count", [False, True])
def test_gradient_of_an_embedding(by_count: bool) -> None:
    """Summed in float32 and cast at the end; how often a row was looked up is counted first where that matters."""
    indices, gradient = torch.zeros(2, 3, dtype=torch.int32), torch.ones(2, 3, 4, dtype=torch.float16)
    work = describe(
        "embedding_dense_backward",
        grad_output=gradient,
        indices=indices,
        num_weights=9,
        padding_idx=-1,
        scale_grad_by_freq=by_count,
    )
    assert (work.results[0].dtype, work.results[0].shape) == (torch.float16, (9, 4))
    assert [(to is work.results[0], source.dtype) for to, source in work.copies] == [(True, torch.float32)]
    count = [("embedding_dense_backward_count_int_32", (6,))] if by_count else []
    assert [(one.kernel, one.threads) for one in work.launches] == [
        *count,
        ("embedding_dense_backward_half_int_32", (24,)),
    ]
    params = work.launches[-1].buffers[-1]
    assert (params["outer_sizes"], params["grad_outer_strides"], params["feature_size"]) == ([2, 3], [12, 4], 4)


def test_windows() -> None:
    """Settings for each dimension, where one number stands for all and no step is the window's size."""
    given = {"kernel_size": [2], "stride": [], "padding": [0], "ceil_mode": False, "count_include_pad": True}
    x, gradient = torch.ones(1, 2, 4, 6, 6), torch.ones(1, 2, 2, 3, 3)
    work = describe("avg_pool3d_backward", grad_output=gradient, self=x, divisor_override=None, **given)
    (launch,) = work.launches
    params = launch.buffers[2]
    assert (launch.kernel, launch.threads, params["output_sizes"]) == (
        "avg_pool_backward_float",
        (36,),
        [1, 2, 2, 3, 3],
    )
    assert (params["kernel_size"], params["stride"], params["has_divisor_override"]) == ((2,) * 3, (2,) * 3, False)
    assert not {"max_pool2d_with_indices", "avg_pool2d_backward"} & DESCRIBED.keys()  # MPSGraph's


def test_groups_of_channels() -> None:
    """A group of threads for each group of channels, four numbers a thread; backwards also one for each channel."""
    given = {"N": 2, "C": 6, "HxW": 50, "group": 3}
    x, weight = torch.ones(2, 6, 50, dtype=torch.float16), torch.ones(6)
    work = describe("native_group_norm", input=x, weight=weight, bias=None, **given, eps=1e-5)
    (launch,) = work.launches
    assert launch.kernel == "group_norm_half_float_float_void_uint32_t"
    assert (launch.threads, launch.group) == ((6 * 32,), (32,))
    assert [one.dtype for one in work.results] == [torch.float16, torch.float32, torch.float32]
    assert launch.buffers[-1]["elements_per_group"] == 100
    stats = torch.ones(2, 3)
    given |= {"grad_out": x.float(), "input": x.float(), "mean": stats, "rstd": stats, "weight": weight}
    work = describe("native_group_norm_backward", **given, output_mask=[True, True, True])
    assert [(one.kernel, one.threads) for one in work.launches] == [
        ("group_norm_backward_x_float_float_float_uint32_t", (192,)),
        ("group_norm_backward_affine_float_float_float_uint32_t", (192,)),
    ]
    assert declines("native_group_norm_backward", **given, output_mask=[True, False, False])


class _Other:
    """A kernel of a release that has one buffer more."""

    def takes(self, count: int) -> bool:
        """Not as many as are given."""
        return count == 4

    def run(self, *given: Any) -> None:
        """Must not be."""
        raise AssertionError("ran")


def test_a_kernel_with_other_arguments_is_left_alone() -> None:
    """A release may change what a kernel takes and keep its name: the device computes the call then."""
    library: Any = {"exp_dense_scalar_float_float": _Other()}
    launcher = Launcher(library, (2, 15))
    for _ in range(2):
        assert launcher("aten::exp", [torch.ones(3)], []) is None
    assert not launcher.real
