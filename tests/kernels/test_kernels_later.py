"""Launches of kernels that torch 2.15 has, and 2.13 lacks."""

from __future__ import annotations

import pytest
import torch

from anymps.kernels.launches import Launch, Work
from described import declines, describe, launch_of

LATER = (2, 15)


def test_three_tensors_and_a_number() -> None:
    """The number is wide for halves; a cast tells sizes and dtypes of all four; a strided grid has three positions."""
    x, given = torch.ones(2, 3, 4, 5).half(), {"value": 3, "release": LATER}
    launch = launch_of(describe("addcmul", self=x, tensor1=x, tensor2=x, **given))
    assert (launch.kernel, launch.buffers[4:]) == ("addcmul_dense_half_half_float", (3,))
    launch = launch_of(describe("addcdiv", self=x.float(), tensor1=x, tensor2=x, **given))
    assert (launch.kernel, launch.buffers[5:]) == ("addcdiv_dense_cast_float_float", ([4, 2, 2, 4], [6, 5, 5, 6]))
    launch = launch_of(describe("addcmul", self=x, tensor1=x[:1], tensor2=x, **given))
    assert (launch.kernel, launch.threads) == ("addcmul_strided_half_half_float", (5, 4, 6))
    whole = x.int()
    assert declines("addcmul", self=whole, tensor1=whole, tensor2=whole, value=0.5, release=LATER)
    launch = launch_of(describe("lerp", self=x, end=x, weight=x, release=LATER))
    assert launch.kernel == "lerp_dense_half_half"


@pytest.mark.parametrize(
    ("shape", "dim", "kernels", "threads", "group"),
    [
        ((7, 50), 1, ["softmax_row_float_u32"], (256, 1, 1), (256, 1, 1)),
        ((200, 1500), 1, ["softmax_row_float_u32"], (6400, 1, 1), (256, 1, 1)),
        ((3, 1500), 1, ["softmax_float_u32"], (1, 768, 1), (1, 256, 1)),
        ((2, 5000), 1, ["softmax_partial_float_u32", "softmax_finalize_float_u32"], (768, 2, 1), (256, 1, 1)),
        ((3, 50, 7), 1, ["softmax_float_u32"], (7, 192, 1), (7, 64, 1)),
        (
            (2, 9000, 3),
            1,
            ["softmax_strided_partial_float_u32", "softmax_strided_finalize_float_u32"],
            (3, 512, 2),
            (3, 256, 1),
        ),
    ],
)
def test_softmax(
    shape: tuple[int, ...], dim: int, kernels: list[str], threads: tuple[int, ...], group: tuple[int, ...]
) -> None:
    """A SIMD group a row, rows in parts, groups of columns, and columns in parts."""
    work = describe("_softmax", self=torch.zeros(shape), dim=dim, half_to_float=False)
    assert [one.kernel for one in work.launches] == kernels
    assert {(one.threads, one.group) for one in work.launches} == {(threads, group)}


def test_softmax_into_a_tensor_that_is_not_dense() -> None:
    """Computed beside it, and copied."""
    out = torch.zeros(5, 7).t()
    work = describe("_log_softmax", (out,), self=torch.zeros(7, 5), dim=1, half_to_float=False, out=out)
    assert work.launches[0].kernel == "log_softmax_row_float_u32"
    assert [target is out for target, _ in work.copies] == [True]


def test_factors_by_blocks_of_later_releases() -> None:
    """Their kernels name the dtype."""
    work = describe("linalg_cholesky_ex", release=LATER, self=torch.eye(40), upper=False, check_errors=False)
    assert len(work.launches) == 5
    numbers = torch.eye(3, dtype=torch.complex64)
    work = describe("linalg_cholesky_ex", release=LATER, self=numbers, upper=True, check_errors=False)
    assert [one.kernel for one in work.launches] == ["factorDiagonalBlockU_float2", "triu_inplace_int_float2"]


def test_numbers_at_equal_distances() -> None:
    """The first and the step, then how far apart the places lie; another size is made by the host first."""
    out = torch.zeros(20)[::2]
    launch = launch_of(describe("arange", (out,), start=1, end=6, step=0.5, out=out))
    assert (launch.kernel, launch.threads) == ("arange_float_i32", (10,))
    assert launch.buffers[1:] == ([1, 0.5], [2, 0])
    assert declines("arange", (out,), start=1, end=7, step=0.5, out=out)
    whole = torch.zeros(10, dtype=torch.int64)
    assert declines("arange", (whole,), start=1, end=6, step=0.5, out=whole)


@pytest.mark.parametrize(
    ("p", "first", "second"),
    [
        (0, "norm_l0_reduction_flat_half_float", "sum_reduction_float_half"),
        (1, "norm_l1_reduction_flat_half_float", "sum_reduction_float_half"),
        (2, "norm_l2_reduction_flat_half_float", "norm_l2_combine_reduction_float_half"),
        (float("inf"), "norm_inf_reduction_flat_half_half", "norm_inf_reduction_half_half"),
        (-float("inf"), "norm_neginf_reduction_flat_half_half", "norm_neginf_reduction_half_half"),
    ],
)
def test_norms(p: float, first: str, second: str) -> None:
    """Partial results of sums are float32; only the last pass is told of the root."""
    x = torch.zeros(300, 300).half()
    work = describe("linalg_vector_norm", release=LATER, self=x, ord=p, dim=None, keepdim=False, dtype=None)
    assert [one.kernel for one in work.launches] == [first, second]
    assert work.launches[1].buffers[2]["p"] == (2.0 if p == 2 else 0.0)
    assert declines("linalg_vector_norm", release=LATER, self=x, ord=3, dim=None, keepdim=False, dtype=None)


def test_gradients_that_are_gathered() -> None:
    """A thread has a place of the smaller image in one plane; nothing is added up."""
    given = {"grad_output": torch.zeros(2, 3, 9, 14), "output_size": [9, 14], "input_size": [2, 3, 4, 6]}
    given |= {"scales_h": None, "scales_w": None}
    launch = launch_of(describe("upsample_nearest2d_backward", **given, release=LATER))
    assert (launch.kernel, launch.threads) == ("upsample_nearest2d_backward_float_u32", (6, 4, 6))
    assert declines("upsample_nearest2d_backward", **given)


def test_numbers_between_edges() -> None:
    """Weights go into a histogram for each thread, and these are summed; counts are the CPU's."""
    given = {"self": torch.zeros(6, 5), "bins": torch.tensor([0.0, 1, 3]), "range": None, "density": False}
    assert declines("histogram", **given, weight=None, release=LATER)
    assert declines("histc", self=torch.zeros(6, 5), bins=9, min=0, max=1, release=LATER)
    work = describe("histogram", **given, weight=torch.ones(6, 5), release=LATER)
    assert (work.launches[0].kernel, work.launches[0].buffers[8:]) == ("histogramdd_float", (2, 1))
    assert work.launches[1].kernel.startswith("sum_")


def _names(work: Work) -> list[str]:
    return [one.kernel for one in work.launches]


def test_slices_are_added() -> None:
    """Into a copy of the tensor; the factor is of its type."""
    x, index, source = torch.zeros(3, 4), torch.tensor([2, 0]), torch.ones(2, 4)
    work = describe("index_add", self=x, dim=0, index=index, source=source, alpha=2)
    check, add = work.launches
    assert work.results[0].data_ptr() != x.data_ptr()
    assert (check.kernel, add.kernel, add.threads) == ("index_check_bounds_long", "index_add_float_long", (8,))
    assert (add.buffers[0] is work.results[0], add.buffers[4]) == (True, 2)
    numbers = describe(
        "index_add", self=x.to(torch.complex64), dim=0, index=index, source=source.to(torch.complex64), alpha=2
    )
    assert repr(numbers.launches[1].buffers[4]) == "(2+0j)"


def test_halves_at_few_places_are_added_in_float32() -> None:
    """From sixteen indices a place on; the sums are copied back."""
    x, index, source = torch.zeros(2, 3).half(), torch.zeros(32, dtype=torch.int64), torch.ones(32, 3).half()
    work = describe("index_add", self=x, dim=0, index=index, source=source, alpha=1)
    assert work.launches[1].kernel == "index_add_float_long"
    assert [(target is work.results[0], one.dtype) for target, one in work.copies] == [(True, torch.float32)]
    work = describe("index_add", self=x, dim=0, index=index[:31], source=source[:31], alpha=1)
    assert _names(work)[1] == "index_add_half_long"


def test_slices_that_do_not_fit() -> None:
    """Of another size, of another dtype, or by half a whole number."""
    x, index, source = torch.zeros(3, 4), torch.tensor([2, 0]), torch.ones(2, 4)
    given = {"self": x, "dim": 0, "index": index, "alpha": 1}
    assert declines("index_add", **given, source=source[:1])
    assert declines("index_add", **given, source=source[:, :3])
    assert declines("index_add", **given, source=source.half())
    whole = {**given, "self": x.int(), "alpha": 0.5}
    assert declines("index_add", **whole, source=source.int())


def test_floats_of_one_block_are_sorted_as_integers() -> None:
    """But not by a stable sort, nor in torch 2.13; all ranks are named where not some are chosen."""
    x = torch.zeros(3, 100)
    launch = launch_of(describe("sort", release=LATER, self=x, dim=1, descending=True, stable=False))
    assert (launch.kernel, launch.buffers[5:]) == ("sort_block_fkey_float_tptg32", (True, [0, 100]))
    launch = launch_of(describe("topk", release=LATER, self=x.half(), k=4, dim=1, largest=True, sorted=True))
    assert (launch.kernel, launch.buffers[6]) == ("sort_block_fkey_half_tptg32", [0, 4])
    launch = launch_of(describe("sort", release=LATER, self=x, dim=1, descending=False, stable=True))
    assert launch.kernel == "sort_block_float_tptg32_stable"
    assert (
        launch_of(describe("sort", self=x, dim=1, descending=False, stable=False)).kernel == "sort_block_float_tptg32"
    )


def _into(out: torch.Tensor, operator: str, **given: object) -> Launch:
    return launch_of(describe(operator, (out,), release=LATER, out=out, **given))


def test_numbers_between_two_ends() -> None:
    """The first, the step and the last; then how many, how far apart, and the first place."""
    launch = _into(torch.zeros(9), "linspace", start=-1, end=3, steps=9)
    assert (launch.kernel, launch.buffers[1:]) == ("linspace_float_i32", ([-1, 0.5, 3], [9, 1, 0]))
    launch = _into(torch.zeros(18)[::2], "linspace", start=-1, end=3, steps=9)
    assert launch.buffers[2] == [9, 2, 0]


def test_steps_are_divided_as_float32() -> None:
    """A third is the float32 next to it."""
    assert _into(torch.zeros(4), "linspace", start=0, end=1, steps=4).buffers[1] == [0, 0.3333333432674408, 1]


def test_steps_into_a_matrix() -> None:
    """The first and the step, how the result lies, and its first place; of a count of numbers that comes before."""
    launch = _into(torch.zeros(2, 3).t(), "arange", start=1, end=13, step=2)
    assert (launch.kernel, launch.buffers[1:]) == ("arange_strided_float", ([1, 2], 2, [2, 3], [3, 1], 0))
    launch = _into(torch.zeros(2, 3).t(), "linspace", start=0, end=10, steps=6)
    assert (launch.kernel, launch.threads) == ("linspace_strided_float", (6,))
    assert launch.buffers[1:] == ([0, 2, 10], [6, 0], 2, [2, 3], [3, 1])


def test_ends_that_need_no_kernel() -> None:
    """One number is a fill, and another count one that the host would resize to."""
    out = torch.zeros(1)
    assert declines("linspace", (out,), release=LATER, out=out, start=1, end=2, steps=1)
    assert declines("linspace", (out,), release=LATER, out=out, start=1, end=2, steps=2)
