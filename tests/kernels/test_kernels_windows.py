"""Windows, edges, bags, images and grids: names, arguments and threads, described without the kernels."""

from __future__ import annotations

from typing import Any

import torch

from described import declines, describe, launch_of

WINDOWS = {"kernel_size": [3, 2], "dilation": [1, 1], "padding": [1, 0], "stride": [2, 1]}


def test_columns_as_an_image() -> None:
    """A thread for each pixel."""
    work = describe("col2im", self=torch.ones(2, 18, 35), output_size=[9, 8], **WINDOWS)
    (launch,) = work.launches
    assert work.results[0].shape == (2, 3, 9, 8)
    assert (launch.kernel, launch.threads, launch.group) == ("col2im_kernel_float_u32", (8, 9, 6), (8, 9, 1))
    assert launch.buffers[2:4] == (630, 3)
    assert launch.buffers[4:10] == ([9, 8], [3, 2], [1, 0], [2, 1], [1, 1], [5, 7])
    assert launch.buffers[10:] == (216, [35, 1])


def bags(**more: Any) -> dict[str, Any]:
    """The arguments of a gradient of four bags with seven indices."""
    return {
        "grad": torch.ones(4, 5),
        "indices": torch.tensor([0, 3, 3, 5, 1, 0, 2]),
        "offset2bag": torch.tensor([0, 0, 0, 2, 2, 3, 3]),
        "bag_size": torch.tensor([3, 0, 2, 2]),
        "maximum_indices": torch.zeros(4, 5, dtype=torch.int64),
        "num_weights": 6,
        "scale_grad_by_freq": False,
        "mode": 0,
        "per_sample_weights": None,
        "padding_idx": -1,
    } | more


def test_gradients_of_bags() -> None:
    """A thread for each number that is added; of the largest ones for each number of the gradient."""
    for mode, threads in ((0, 35), (1, 35), (2, 20)):
        work = describe("_embedding_bag_dense_backward", **bags(mode=mode))
        (launch,) = work.launches
        assert (launch.kernel, launch.threads) == ("embedding_bag_backward_float_long", (threads,))
        assert work.results[0].shape == (6, 5)
        assert launch.buffers[-1]["max_indices_strides"] == ((5, 1) if mode == 2 else (0, 0))
    given = {"weight": torch.ones(6, 5), "offsets": torch.tensor([0, 3, 3, 5]), "mode": 0, "padding_idx": -1}
    given |= {name: bags()[name] for name in ("grad", "indices", "offset2bag")}
    work = describe("_embedding_bag_per_sample_weights_backward", **given)
    assert work.results[0].shape == (7,)
    assert work.launches[0].kernel == "embedding_bag_per_sample_weights_backward_float_long"


def test_what_is_left_to_others() -> None:
    """Sizes of bags that the CPU did not count, other settings, windows that do not fit, a later release."""
    assert declines("_embedding_bag_dense_backward", **bags(bag_size=torch.zeros(4, dtype=torch.int64)))
    assert declines("_embedding_bag_dense_backward", **bags(offset2bag=torch.tensor([], dtype=torch.int64)))
    assert declines("_embedding_bag_dense_backward", **bags(scale_grad_by_freq=True))
    assert describe("_embedding_bag_backward", **bags(sparse=False)) is not None
    assert declines("_embedding_bag_backward", **bags(sparse=True))
    assert declines("col2im", self=torch.ones(2, 18, 34), output_size=[9, 8], **WINDOWS)
    assert declines("col2im", release=(2, 14), self=torch.ones(2, 18, 35), output_size=[9, 8], **WINDOWS)


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
