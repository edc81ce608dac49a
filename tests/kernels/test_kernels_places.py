"""Calls that add up what lies at places: edges, windows and images, described without the kernels."""

from __future__ import annotations

from typing import Any

import torch

from described import declines, describe, launch_of


def test_gradients_of_an_edge() -> None:
    """A thread an element of the gradient."""
    x, gradient = torch.ones(2, 3, 7), torch.ones(2, 3, 10)
    launch = launch_of(describe("replication_pad1d_backward", grad_output=gradient, self=x, padding=[2, 1]))
    assert (launch.kernel, launch.threads) == ("replication_pad1d_backward_float", (7, 3, 2))
    assert launch.buffers[2] == [7, 10, 2, 1]


def test_what_flows_back_through_an_edge() -> None:
    """A thread has four numbers of the gradient that goes out; without a batch its stride is zero."""
    x, gradient = torch.zeros(3, 4, 5, 6), torch.zeros(3, 5, 6, 9)
    work = describe(
        "reflection_pad3d_backward", grad_output=gradient, self=x, padding=[1, 2, 0, 1, 1, 0], release=(2, 15)
    )
    launch = launch_of(work)
    assert (launch.kernel, launch.threads) == ("reflection_pad3d_backward_float_i32", (2, 5, 12))
    assert launch.buffers[2]["input_strides"] == [1, 6, 30, 120, 0]
    assert launch.buffers[2]["output_sizes"] == [9, 6, 5]
    given = {"grad_output": gradient[..., 1:], "self": x, "padding": [1, 2, 0, 1, 1, 0]}
    assert declines("reflection_pad3d_backward", release=(2, 15), **given)


def test_windows_put_back() -> None:
    """The windows' strides come first."""
    gradient = torch.ones(3, 2, 4)
    launch = launch_of(describe("unfold_backward", grad_in=gradient, input_sizes=[6, 2], dim=0, size=4, step=1))
    assert (launch.kernel, launch.threads) == ("unfold_backward_float", (12,))
    assert launch.buffers[2:] == ((8, 4, 1), [6, 2], (2, 1), [0, 4, 1, 2])


def test_gradients_of_images() -> None:
    """A thread a place of the gradient; the images' and the grid's have kernels of their own in two dimensions."""
    gradient = torch.ones(2, 3, 8, 9)
    given: dict[str, Any] = {"grad_output": gradient, "output_size": [8, 9], "input_size": [2, 3, 4, 5]}
    work = describe("upsample_bicubic2d_backward", align_corners=False, scales_h=None, scales_w=None, **given)
    launch = launch_of(work)
    assert (launch.kernel, launch.threads) == ("upsample_bicubic2d_backward_float", (72,))
    assert launch.buffers[6:] == ([0.5555555820465088, 0.5], False)
    x, grid = torch.ones(2, 3, 4, 5), torch.zeros(2, 8, 9, 2)
    settings = {"interpolation_mode": 2, "padding_mode": 1, "align_corners": True, "output_mask": [True, True]}
    both = {"grad_output": gradient, "input": x, "grid": grid}
    work = describe("grid_sampler_2d_backward", **both, **settings)
    assert [(one.kernel, one.threads) for one in work.launches] == [
        ("grid_sampler_2d_backward_bicubic_input_border_i32_float", (144,)),
        ("grid_sampler_2d_backward_bicubic_grid_border_i32_float", (144,)),
    ]
    settings["interpolation_mode"] = 0
    space = {"grad_output": gradient[:, :, None], "input": x[:, :, None], "grid": torch.zeros(2, 1, 8, 9, 3)}
    launch = launch_of(describe("grid_sampler_3d_backward", **space, **settings))
    assert (launch.kernel, launch.threads) == ("grid_sampler_3d_backward_i32_float", (9, 8, 2))
    forward = {name: space[name] for name in ("input", "grid")}
    launch = launch_of(
        describe("grid_sampler_3d", **forward, interpolation_mode=1, padding_mode=0, align_corners=False)
    )
    assert (launch.kernel, launch.threads) == ("grid_sampler_3d_nearest_zeros_i32_float", (432,))


def test_a_histogram() -> None:
    """A histogram a number, which the kernels of sums add up; edges are given as numbers."""
    x = torch.arange(6.0).reshape(2, 3)
    work = describe("histc", self=x, bins=5, min=0, max=0)
    first, second, third = work.launches
    assert (first.kernel, first.threads, first.buffers[2:]) == ("kernel_index_offset", (6,), ([6, 1], 2))
    assert (second.kernel, second.threads) == ("histogramdd_float", (6,))
    assert second.buffers[4:] == (1, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [6], [0.0], [5.0], (5, 1), 0, -1)
    assert (third.kernel, third.buffers[0]) == ("sum_reduction_outer_float_float", second.buffers[2])
    assert work.results[0].shape == (5,)
    settings = {"weight": x, "density": False}
    work = describe("histogram", self=x, bins=torch.tensor([0.0, 2.0, 5.0]), **settings)
    assert work.launches[1].buffers[10:] == (2, 1)
    assert torch.equal(work.results[1], torch.tensor([0.0, 2.0, 5.0]))
    assert declines("histogram", self=x, bins=2, range=None, weight=None, density=True)
    assert declines("histc", self=x, bins=5, min=3, max=1)
    alone = torch.ones(3)
    work = describe("histogram", self=alone, bins=2, range=None, weight=None, density=False)
    assert work.launches[1].buffers[5] == [0.5, 1.0, 1.5]
    work = describe("histc", self=alone, bins=2, min=0, max=0)
    assert work.launches[1].buffers[5] == [0.0, 1.0, 2.0]


def test_slices_of_a_norm() -> None:
    """Factors of the norms, and their product with the numbers."""
    x = torch.ones(4, 3)
    work = describe("renorm", self=x, p=2, dim=0, maxnorm=1.5)
    first, second = work.launches
    assert (first.kernel, first.threads, first.buffers[2]) == ("renorm_float", (4,), 1.5)
    assert (second.kernel, second.threads) == ("mul_strided_float_float", (12,))
    assert second.buffers[3:] == ([3, 4], [4, 12], [4, 12], [0, 4], [2, 0, 0])
