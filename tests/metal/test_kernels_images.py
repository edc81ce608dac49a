"""Fills, searches, upsampling and grids: names, arguments and grids, described without the kernels."""

from __future__ import annotations

from typing import Any

import torch

from anymps.metal.kernels.launches import Work
from described import describe, launch_of


def fill(x: torch.Tensor, value: Any) -> Work | None:
    """A fill in place."""
    return describe("fill", (x,), self=x, value=value)


def test_a_fill() -> None:
    """A thread a number; with gaps the innermost dimension is the second of the grid, and strides are bytes."""
    x = torch.ones(3, 4)
    launch = launch_of(fill(x, 2))
    assert (launch.kernel, launch.threads, launch.buffers[1:]) == ("fill_scalar_dense_float", (12,), (2.0, 12))
    gaps = x[:, :2]
    launch = launch_of(fill(gaps, 0))
    assert (launch.kernel, launch.threads, launch.group) == ("fill_scalar_strided_float", (3, 2), (3, 1))
    assert launch.buffers[0] is gaps
    assert launch.buffers[1:] == (0.0, [2, 3], [4, 16], 2)


def test_a_fill_that_no_kernel_does() -> None:
    """Zeros and bytes of a dense tensor, what the dtype cannot hold, and a result that is not the operand."""
    x = torch.ones(3)
    assert describe("fill", (torch.ones(3),), self=x, value=2) is None
    assert fill(torch.ones(3), 0) is None
    assert fill(torch.ones(3, dtype=torch.uint8), 7) is None
    assert fill(torch.ones(3, dtype=torch.int16), 70_000) is None


def test_a_masked_fill_looks_at_bits() -> None:
    """By the size of a number; the mask lies as the numbers do, repeats over them, or has strides of its own."""
    x, mask = torch.ones(2, 3, 4), torch.ones(3, 4, dtype=torch.bool)
    launch = launch_of(describe("masked_fill", self=x, mask=mask, value=1.0))
    assert (launch.kernel, launch.threads) == ("masked_fill_scalar_broadcast_32bit", (24,))
    assert launch.buffers[1] is mask
    assert launch.buffers[2:] == (0x3F800000, 12)
    launch = launch_of(describe("masked_fill", (x,), self=x, mask=x > 0, value=1.0))
    assert (launch.kernel, launch.buffers[2:]) == ("masked_fill_scalar_dense_32bit", (0x3F800000,))
    assert launch.buffers[0] is x
    half = x.half()
    launch = launch_of(describe("masked_fill", (half,), self=half, mask=mask[:, :1], value=-2))
    assert (launch.kernel, launch.buffers[2]) == ("masked_fill_scalar_strided_16bit", -0x4000)
    assert launch.buffers[3:] == ([2, 3, 4], [12, 4, 1], [0, 4, 0], 3)
    assert describe("masked_fill", (x[:1],), self=x, mask=mask, value=1.0) is None
    assert describe("masked_fill", self=x, mask=mask[:2], value=1.0) is None
    row = mask[:1]
    launch = launch_of(describe("masked_fill", self=x, mask=row, value=1.0))
    assert (launch.kernel, launch.buffers[3]) == ("masked_fill_scalar_broadcast_32bit", 4)


def test_a_search() -> None:
    """Up to 1024 numbers a group, up to 1024 groups, all of them whole; rows have boundaries of their own."""
    numbers, x = torch.arange(9.0), torch.zeros(3, 700)
    launch = launch_of(describe("bucketize", self=x, boundaries=numbers, out_int32=True, right=False))
    assert (launch.kernel, launch.threads, launch.group) == ("searchsorted_float_int", (3 * 1024,), (1024,))
    assert launch.buffers[3:] == (700, 9, 2100, 0, 1)
    rows, order = numbers.expand(3, 9).contiguous(), torch.zeros(3, 9, dtype=torch.int64)
    given = {"sorted_sequence": rows, "out_int32": False, "right": False, "side": "right", "sorter": order}
    launch = launch_of(describe("searchsorted", self=x[:, :5].contiguous(), **given))
    assert (launch.kernel, launch.threads, launch.group) == ("searchsorted_float_long_sorter", (15,), (15,))
    assert launch.buffers[3:8] == (5, 9, 15, 1, 0)
    assert launch.buffers[8] is order
    assert describe("searchsorted", self=1.0, **given) is None
    large = torch.zeros(1, dtype=torch.int64).expand(2**21).contiguous().float()
    launch = launch_of(describe("bucketize", self=large, boundaries=numbers, out_int32=False, right=True))
    assert launch.threads == (1024 * 1024,)


def test_upsampling() -> None:
    """A thread a place of the result; the width's scale stands first. Three dimensions take a struct."""
    x = torch.ones(2, 3, 4, 5)
    given: dict[str, Any] = {"self": x, "output_size": [8, 9], "align_corners": True, "scales_h": None}
    work = describe("upsample_bilinear2d", scales_w=None, **given)
    launch = launch_of(work)
    assert work is not None
    assert work.results[0].shape == (2, 3, 8, 9)
    assert (launch.kernel, launch.threads) == ("upsample_bilinear2d_float", (72,))
    assert launch.buffers[2:6] == ((60, 20, 5, 1), (216, 72, 9, 1), [2, 3, 4, 5], [2, 3, 8, 9])
    assert launch.buffers[6:] == ([0.5, 0.4285714328289032], True)
    given |= {"align_corners": False, "scales_w": 2.5}
    assert launch_of(describe("upsample_bicubic2d", **given)).buffers[6:] == ([0.4000000059604645, 0.5], False)
    last = x.contiguous(memory_format=torch.channels_last)
    work = describe("upsample_bilinear2d", **{**given, "self": last})
    assert work is not None
    assert work.results[0].is_contiguous(memory_format=torch.channels_last)
    assert describe("upsample_bilinear2d", release=(2, 14), **given) is None
    space = {"self": x[None], "output_size": [3, 4, 10], "scales_d": None, "scales_h": None, "scales_w": None}
    launch = launch_of(describe("upsample_nearest3d", **space))
    assert (launch.kernel, launch.threads) == ("upsample_nearest_3d_float", (120,))
    params = launch.buffers[2]
    assert (params["scales"], params["align_corners"]) == ([0.5, 1.0, 1.0], False)
    line = {"self": x[0], "output_size": [10], "align_corners": False, "scales": None}
    assert launch_of(describe("upsample_linear1d", **line)).buffers[6] == [0.5, 0.5]


def test_a_grid() -> None:
    """A thread a place of each image; interpolation and padding stand in the name."""
    x, grid = torch.ones(2, 3, 4, 5), torch.zeros(2, 6, 7, 2)
    given = {"input": x, "grid": grid, "interpolation_mode": 2, "padding_mode": 1, "align_corners": True}
    launch = launch_of(describe("grid_sampler_2d", **given))
    assert (launch.kernel, launch.threads) == ("grid_sampler_2d_bicubic_border_i32_float", (84,))
    assert launch.buffers[3]["output_sizes"] == [2, 3, 6, 7]
    assert launch.buffers[3]["grid_strides"] == [84, 14, 2, 1]
    assert describe("grid_sampler_2d", **{**given, "grid": grid.half()}) is None
