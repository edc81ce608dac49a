"""Upsampling and grids: names, arguments and grids, described without the kernels."""

from __future__ import annotations

from typing import Any

import torch

from described import declines, describe, launch_of


def test_upsampling() -> None:
    """A thread a place of the result; the width's scale stands first. Three dimensions take a struct."""
    x = torch.ones(2, 3, 4, 5)
    given: dict[str, Any] = {"self": x, "output_size": [8, 9], "align_corners": True, "scales_h": None}
    work = describe("upsample_bilinear2d", scales_w=None, **given)
    launch = launch_of(work)
    assert work.results[0].shape == (2, 3, 8, 9)
    assert (launch.kernel, launch.threads) == ("upsample_bilinear2d_float", (72,))
    assert launch.buffers[2:6] == ((60, 20, 5, 1), (216, 72, 9, 1), [2, 3, 4, 5], [2, 3, 8, 9])
    assert launch.buffers[6:] == ([0.5, 0.4285714328289032], True)
    given |= {"align_corners": False, "scales_w": 2.5}
    assert launch_of(describe("upsample_bicubic2d", **given)).buffers[6:] == ([0.4000000059604645, 0.5], False)
    last = x.contiguous(memory_format=torch.channels_last)
    work = describe("upsample_bilinear2d", **{**given, "self": last})
    assert work.results[0].is_contiguous(memory_format=torch.channels_last)
    assert declines("upsample_bilinear2d", release=(2, 14), **given)
    space = {"self": x[None], "output_size": [3, 4, 10], "scales_d": None, "scales_h": None, "scales_w": None}
    launch = launch_of(describe("upsample_trilinear3d", align_corners=False, **space))
    assert (launch.kernel, launch.threads) == ("upsample_trilinear_float", (120,))
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
    assert declines("grid_sampler_2d", **{**given, "grid": grid.half()})
