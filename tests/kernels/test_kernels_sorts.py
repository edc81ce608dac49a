"""Sorts on PyTorch's own kernels: how many launches a shape takes, and which; described without the kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.kernels.launches import Work
from described import declines, describe, launch_of


def sort(x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Work:
    """A sort along a dimension."""
    return describe("sort", self=x, dim=dim, descending=descending, stable=stable)


def names(work: Work) -> list[str]:
    """The kernels of its launches."""
    return [one.kernel for one in work.launches]


def test_a_row_that_a_group_holds() -> None:
    """Four numbers a thread, a power of two of threads, 32 at least; as the rows lie."""
    x = torch.ones(3, 200)
    for stable, kernel in ((None, "sort_block_float_tptg64"), (True, "sort_block_float_tptg64_stable")):
        launch = launch_of(sort(x, descending=True, stable=stable))
        assert (launch.kernel, launch.threads, launch.group) == (kernel, (64, 3, 1), (64, 1, 1))
        assert launch.buffers[3:] == (200, [1, 200], True)
    turned = x.t()
    launch = launch_of(describe("topk", self=turned, k=2, dim=1, largest=True, sorted=True))
    assert (launch.kernel, launch.threads) == ("sort_block_topk_float_tptg32", (32, 200, 1))
    assert launch.buffers[0].data_ptr() == x.data_ptr()
    assert launch.buffers[3:] == (3, [200, 1], True, [0, 2])


def test_blocks_that_are_merged() -> None:
    """Two by two; floats as integers of the same order, which the last launch turns back."""
    work = sort(torch.ones(3, 9000), descending=True)
    assert names(work) == [
        "mb_sort_block_fkey_float_tptg1024_u16",
        "mb_merge_uint_tptg1024_u16",
        "mb_merge_final_fkey_float_tptg1024_u16",
    ]
    first, second, last = work.launches
    assert {one.threads for one in work.launches} == {(3 * 1024, 3, 1)}
    assert (second.buffers[4:], last.buffers[4:]) == (([9000, 2, 3], False), ([9000, 4, 3], True))
    assert second.buffers[:2] == first.buffers[1:3]
    assert last.buffers[:4] == (*second.buffers[2:4], *work.results)


def test_rows_of_eight_bytes_and_single_rows() -> None:
    """Fewer threads a group: for memory, and so that one row has several groups."""
    assert names(sort(torch.ones(300, 2000, dtype=torch.int64)))[0] == "mb_sort_block_long_tptg256_u16"
    assert names(sort(torch.ones(2, 3000, dtype=torch.int64)))[0] == "mb_sort_block_long_tptg512_u16"
    assert names(sort(torch.ones(2, 3000)))[0] == "mb_sort_block_fkey_float_tptg512_u16"
    assert names(sort(torch.ones(3, 3000))) == ["sort_block_float_tptg1024"]


def test_other_dimensions_are_copied() -> None:
    """And back, where the last kernel does not write what was asked for."""
    x = torch.arange(12.0).reshape(4, 3)
    work = sort(x, dim=0, stable=True)
    assert names(work) == ["mb_sort_block_float_tptg32_stable"]
    (launch,) = work.launches
    assert torch.equal(launch.buffers[0], x.t())
    assert [(to.shape, source.shape) for to, source in work.copies] == [(x.shape, x.shape)] * 2
    work = describe("kthvalue", self=x, k=2, dim=0, keepdim=False)
    assert names(work) == ["sort_block_topk_float_tptg32"]
    assert work.launches[0].buffers[6] == [1, 1]
    assert work.results[0].shape == (3,)
    assert not work.copies


@pytest.mark.parametrize(
    ("shape", "dtype", "first", "count"),
    [
        ((3, 3000), torch.float16, "radix_count_scan_half_8bit_mb4", 4),
        ((40, 9000), torch.float16, "radix_count_half_8bit_tptg512", 6),
        ((40, 2048), torch.float16, "radix_count_half_8bit_tptg512", 4),
        ((3, 70_000), torch.float32, "radix_count_float_8bit", 12),
        ((3, 5000), torch.int8, "radix_count_scan_char_4bit_mb4", 4),
        ((3, 40_000), torch.uint8, "radix_count_uchar_4bit", 6),
    ],
)
def test_rows_that_are_sorted_by_bits(shape: tuple[int, int], dtype: torch.dtype, first: str, count: int) -> None:
    """A count and a move of each digit; the counts are added up on the way where blocks are few."""
    work = sort(torch.ones(shape, dtype=dtype))
    assert (names(work)[0], len(names(work))) == (first, count)
    assert work.launches[0].buffers[2][2] == 0
    assert work.launches[-1].buffers[2:4] == work.results
    moves = [one for one in work.launches if "scatter" in one.kernel]
    assert [one.buffers[6] for one in moves] == [[False, True], *[[False, False]] * (len(moves) - 1)]


def test_the_number_at_a_place_comes_as_its_own_out() -> None:
    """With empty tensors, which get the shape of the result; others are the CPU's to resize."""
    x, values, places = torch.ones(4, 3), torch.ones(0), torch.ones(0, dtype=torch.int64)
    work = describe("kthvalue", (values, places), self=x, k=2, dim=1, keepdim=True)
    assert work.results == (values, places)
    assert (values.shape, places.shape) == ((4, 1), (4, 1))
    assert declines("kthvalue", (torch.ones(2), places), self=x, k=2, dim=1, keepdim=False)


def test_what_no_kernel_sorts() -> None:
    """One number, complex numbers, results in the program's memory, and other releases."""
    x = torch.ones(3, 4)
    given: dict[str, Any] = {"self": x, "dim": 1, "descending": False, "stable": None}
    assert describe("sort", **given) is not None
    assert declines("sort", **{**given, "self": x[:, :1]})
    assert declines("sort", **{**given, "self": x.cfloat()})
    assert declines("sort", (x,), **given)
    assert declines("sort", release=(2, 14), **given)
    assert declines("topk", self=x, k=0, dim=1, largest=True)
