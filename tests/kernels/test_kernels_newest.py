"""Launches that torch 2.15 alone has: slices that are added, medians, and sorts of one block."""

from __future__ import annotations

import torch

from anymps.kernels.launches import Work
from described import declines, describe, launch_of

LATER = (2, 15)


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


def test_a_median_along_a_dimension() -> None:
    """Floats are sorted, and a thread a row looks behind the NaNs; of integers it is the number at a place."""
    assert declines("median", release=LATER, self=torch.zeros(3, 50))
    work = describe("median", release=LATER, self=torch.zeros(3, 50, 7), dim=1, keepdim=False)
    assert [one.kernel for one in work.launches] == ["sort_block_fkey_float_tptg32", "median_gather_float"]
    assert (work.launches[1].buffers[4:], work.launches[1].threads) == ((50, False), (21,))
    assert [(one.shape, one.dtype) for one in work.results] == [((3, 7), torch.float32), ((3, 7), torch.int64)]
    launch = launch_of(describe("median", release=LATER, self=torch.zeros(3, 50).int(), dim=1, keepdim=True))
    assert (launch.kernel, launch.buffers[6]) == ("sort_block_topk_int_tptg32", [24, 1])


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
