"""Calls that move numbers: joins, triangles, slices, pads, unpooling and places, described without the kernels."""

from __future__ import annotations

from typing import Any

import torch

from described import describe, launch_of

ROWS = torch.tensor([2, 0])


def test_a_join() -> None:
    """A launch for each tensor that is not empty, which also casts."""
    a, b = torch.ones(2, 3), torch.ones(4, 3, dtype=torch.float16)
    work = describe("cat", tensors=[a, torch.ones(0), b], dim=0)
    assert work is not None
    first, second = work.launches
    assert (first.kernel, first.threads) == ("cat_int32_t_float_float", (6,))
    assert (second.kernel, second.threads) == ("cat_int32_t_half_float", (12,))
    assert work.results[0].shape == (6, 3)
    assert second.buffers[2] == {"ndim": 2, "cat_dim": 0, "output_strides": (3, 1), "output_sizes": [6, 3]}
    assert second.buffers[3]["cat_dim_offset"] == 2
    assert describe("cat", tensors=[a, b[:, :2]], dim=0) is None


def test_triangles() -> None:
    """By column, row and matrix; in place another kernel."""
    x = torch.ones(5, 2, 3)
    launch = launch_of(describe("tril", self=x, diagonal=1))
    assert (launch.kernel, launch.threads) == ("tril_int_float", (3, 2, 5))
    assert launch.buffers[2:] == ([1, 3, 6], [1, 3, 6], [3, 2, 5], [1, 3])
    launch = launch_of(describe("triu", (x,), self=x, diagonal=-1))
    assert (launch.kernel, launch.buffers[1:]) == ("triu_inplace_int_float", ([1, 3, 6], [3, 2, 5], [-1, 3]))


def test_an_identity() -> None:
    """Zeros and ones by one kernel; of a large matrix the ones alone. Threads go along the smaller stride."""
    out = torch.full((3, 5), 7.0)
    launch = launch_of(describe("eye", (out,), n=3, m=5))
    assert (launch.kernel, launch.threads, launch.buffers[1:]) == ("eye_float", (5, 3), (5, 1))
    launch = launch_of(describe("eye", (out.t(),), n=5, m=3))
    assert (launch.threads, launch.buffers[1:]) == ((5, 3), (5, 1))
    large = torch.ones(2049, 2048, dtype=torch.int8)
    launch = launch_of(describe("eye", (large,), n=2049, m=2048))
    assert (launch.kernel, launch.threads, launch.buffers[1:]) == ("eye_diag_char", (2048,), (2049,))
    assert not large.any()


def test_slices_that_are_copied() -> None:
    """Dense, by three sizes; otherwise by the strides of the other dimensions."""
    x, source = torch.zeros(4, 3, 2), torch.ones(4, 2, 2)
    work = describe("index_copy", self=x, dim=1, index=ROWS, source=source)
    launch = launch_of(work)
    assert work is not None
    assert launch.buffers[0] is work.results[0]
    assert (launch.kernel, launch.threads) == ("index_copy_dense_float_long_32", (2, 2, 4))
    assert launch.buffers[3:] == (3, 2, 2)
    turned = torch.ones(2, 2, 4).permute(2, 1, 0)
    launch = launch_of(describe("index_copy", (x,), self=x, dim=1, index=ROWS.int(), source=turned))
    assert (launch.kernel, launch.threads) == ("index_copy_strided_float_int_32", (16,))
    assert launch.buffers[3:] == (3, 2, 4, [4, 2], [6, 1], [1, 8], 2, 8, 1)
    assert launch.buffers[0] is x
    assert describe("index_copy", self=x, dim=1, index=ROWS, source=source[:, :1]) is None


def test_slices_that_are_filled() -> None:
    """A mask first, unless indices are few among many."""
    x = torch.zeros(40, 3)
    work = describe("index_fill", (x,), self=x, dim=1, index=ROWS, value=5)
    assert work is not None
    assert [(one.kernel, one.threads) for one in work.launches] == [
        ("index_fill_zero_mask", (3,)),
        ("index_fill_set_mask", (2,)),
        ("index_fill_dense_from_mask_float", (1, 3, 40)),
    ]
    assert work.launches[2].buffers[2:] == (5.0, 3, 1)
    launch = launch_of(describe("index_fill", (x,), self=x, dim=0, index=ROWS, value=5))
    assert (launch.kernel, launch.threads, launch.buffers[2:]) == ("index_fill_dense_float", (6,), (5.0, 40, 3, 3))
    turned = torch.zeros(3, 40).t()
    launch = launch_of(describe("index_fill", (turned,), self=turned, dim=0, index=ROWS, value=5))
    assert (launch.kernel, launch.buffers[3:]) == ("index_fill_strided_float", (40, 1, [3], [40], 1, 3, 1))
    assert describe("index_fill", (x,), self=x, dim=0, index=ROWS, value=torch.ones(())) is None


def test_slices_taken_together() -> None:
    """What they begin with is filled in first where it does not count; means are divided at the end."""
    x, source = torch.ones(4, 3), torch.ones(2, 3)
    given: dict[str, Any] = {"self": x, "dim": 0, "index": ROWS, "source": source}
    launch = launch_of(describe("index_reduce", reduce="amax", include_self=True, **given))
    assert (launch.kernel, launch.threads) == ("index_reduce_amax_float_long", (6,))
    work = describe("index_reduce", reduce="mean", include_self=False, **given)
    assert work is not None
    assert [one.kernel for one in work.launches] == [
        *("index_fill_zero_mask", "index_fill_set_mask", "index_fill_dense_from_mask_float"),
        *("index_reduce_mean_float_long", "div_true_dense_float_float"),
    ]
    assert work.launches[2].buffers[2] == 0
    assert describe("index_reduce", reduce="amax", include_self=True, **{**given, "self": x.long()}) is None


def test_places_that_are_not_zero() -> None:
    """Three launches: counts within blocks, those of the blocks, and the places."""
    x = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    work = describe("nonzero", self=x)
    assert work is not None
    assert work.results[0].shape == (3, 2)
    assert [(one.kernel, one.threads) for one in work.launches] == [
        ("count_nonzero_prefix_sum_float", (6,)),
        ("prefix_sum_blocks", (32,)),
        ("scatter_nonzero_indices_float", (6,)),
    ]
    assert work.launches[2].buffers[3:5] == (2, [2, 3])
    work = describe("nonzero_static", self=x, size=5, fill_value=-1)
    assert work is not None
    assert (work.results[0].shape, work.launches[2].buffers[6]) == ((5, 2), 5)
    assert describe("nonzero", self=torch.zeros(3)) is None


def test_repeats() -> None:
    """The host reads how many there are; a negative one is the CPU's to refuse."""
    counts = torch.tensor([2, 0, 3])
    work = describe("repeat_interleave", repeats=counts, output_size=None)
    launch = launch_of(work)
    assert work is not None
    assert work.results[0].shape == (5,)
    assert (launch.kernel, launch.threads, launch.buffers[3]) == ("repeat_interleave_int64_t", (3,), 1)
    assert describe("repeat_interleave", repeats=counts - 1, output_size=None) is None


def test_edges_that_are_repeated() -> None:
    """A thread an element of the result; backwards, one of the gradient."""
    x = torch.ones(2, 3, 7)
    launch = launch_of(describe("replication_pad1d", self=x, padding=[2, 1]))
    assert (launch.kernel, launch.threads) == ("replication_pad1d_forward_float", (10, 3, 2))
    assert launch.buffers[2] == [7, 10, 2, 1]
    gradient = torch.ones(2, 3, 10)
    launch = launch_of(describe("replication_pad1d_backward", grad_output=gradient, self=x, padding=[2, 1]))
    assert (launch.kernel, launch.threads) == ("replication_pad1d_backward_float", (7, 3, 2))


def test_windows_and_pools_put_back() -> None:
    """The windows' strides come first; of an unpooling, a thread an element of what is put back."""
    gradient = torch.ones(3, 2, 4)
    launch = launch_of(describe("unfold_backward", grad_in=gradient, input_sizes=[6, 2], dim=0, size=4, step=1))
    assert (launch.kernel, launch.threads) == ("unfold_backward_float", (12,))
    assert launch.buffers[2:] == ((8, 4, 1), [6, 2], (2, 1), [0, 4, 1, 2])
    x = torch.ones(2, 3, 3)
    launch = launch_of(describe("max_unpool2d", self=x, indices=x.long(), output_size=[6, 6]))
    assert (launch.kernel, launch.threads, launch.errors) == ("max_unpool_float", (18,), 4)
    assert launch.buffers[3]["output_sizes"] == [2, 6, 6]


def test_gathers_and_scatters_by_strides() -> None:
    """Where sizes differ beside the dimension, or memory is not dense; signs of int64 are turned around and back."""
    x, index = torch.ones(2, 5, 3), torch.zeros(1, 4, 3, dtype=torch.int64)
    launch = launch_of(describe("gather", self=x, dim=1, index=index, sparse_grad=False))
    assert (launch.kernel, launch.threads, launch.errors) == ("gather_strided_float_long", (12,), 10)
    assert launch.buffers[3:] == ([1, 4, 3], (12, 3, 1), (15, 3, 1), (12, 3, 1), [3, 1, 0], 5, 0)
    assert describe("gather", self=x[:1, :, :2], dim=1, index=index, sparse_grad=False) is None
    launch = launch_of(describe("scatter", self=x, dim=1, index=index, value=2))
    assert launch.kernel == "scatter_set_float_long"
    assert bool((launch.buffers[1] == 2).all())
    whole = x.long()
    given = {"dim": 1, "index": index, "src": whole, "reduce": "amin", "include_self": True}
    work = describe("scatter_reduce", (whole,), self=whole, **given)
    assert work is not None
    turned = "scatter_signbit_xor_long"
    assert [one.kernel for one in work.launches] == [turned, "scatter_amin_strided_long_long", turned]


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
    assert work is not None
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
    assert work is not None
    first, second, third = work.launches
    assert (first.kernel, first.threads, first.buffers[2:]) == ("kernel_index_offset", (6,), ([6, 1], 2))
    assert (second.kernel, second.threads) == ("histogramdd_float", (6,))
    assert second.buffers[4:] == (1, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [6], [0.0], [5.0], (5, 1), 0, -1)
    assert (third.kernel, third.buffers[0]) == ("sum_reduction_outer_float_float", second.buffers[2])
    assert work.results[0].shape == (5,)
    settings = {"weight": x, "density": False}
    work = describe("histogram", self=x, bins=torch.tensor([0.0, 2.0, 5.0]), **settings)
    assert work is not None
    assert work.launches[1].buffers[10:] == (2, 1)
    assert torch.equal(work.results[1], torch.tensor([0.0, 2.0, 5.0]))
    assert describe("histogram", self=x, bins=2, range=None, weight=None, density=True) is None
    assert describe("histc", self=x, bins=5, min=3, max=1) is None
    alone = torch.ones(3)
    work = describe("histogram", self=alone, bins=2, range=None, weight=None, density=False)
    assert work is not None
    assert work.launches[1].buffers[5] == [0.5, 1.0, 1.5]
    work = describe("histc", self=alone, bins=2, min=0, max=0)
    assert work is not None
    assert work.launches[1].buffers[5] == [0.0, 1.0, 2.0]


def test_slices_of_a_norm() -> None:
    """Factors of the norms, and their product with the numbers."""
    x = torch.ones(4, 3)
    work = describe("renorm", self=x, p=2, dim=0, maxnorm=1.5)
    assert work is not None
    first, second = work.launches
    assert (first.kernel, first.threads, first.buffers[2]) == ("renorm_float", (4,), 1.5)
    assert (second.kernel, second.threads) == ("mul_strided_float_float", (12,))
    assert second.buffers[3:] == ([3, 4], [4, 12], [4, 12], [0, 4], [2, 0, 0])
