"""Launches that torch 2.15 alone has: slices at indices, medians, repetitions, and sorts of one block."""

from __future__ import annotations

import pytest
import torch

from anymps.metal.kernels.launches import Work
from described import describe, launch_of, launches_of

LATER = (2, 15)


def _names(work: Work | None) -> list[str]:
    return [one.kernel for one in launches_of(work)]


@pytest.mark.parametrize(
    ("dtype", "shape", "bits", "inner"),
    [
        (torch.float32, (4, 5, 3), 32, 3),
        (torch.float32, (4, 5, 4), 64, 2),
        (torch.float16, (4, 5, 4), 64, 1),
        (torch.int8, (4, 5, 3), 8, 3),
        (torch.complex64, (4, 5), 64, 1),
    ],
)
def test_slices_are_copied_in_the_widest_pieces(
    dtype: torch.dtype, shape: tuple[int, ...], bits: int, inner: int
) -> None:
    """The indices are checked first; up to eight bytes that divide a slice go at once."""
    index = torch.tensor([2, 0, 1], dtype=torch.int32)
    check, copy = launches_of(describe("index_select", self=torch.zeros(shape, dtype=dtype), dim=1, index=index))
    assert (check.kernel, check.buffers[1:], check.threads, check.errors) == (
        "index_check_bounds_int",
        (1, 5),
        (3,),
        3,
    )
    assert (copy.kernel, copy.threads) == (f"index_select_dim_dense_{bits}bit_int", (inner, 3, 4))
    assert copy.buffers[3] == {"inner": inner, "in_dim_size": 5, "out_dim_size": 3, "index_stride": 1}


def test_a_slice_that_begins_at_an_odd_place() -> None:
    """Where both tensors begin must be divided, too."""
    x = torch.zeros(41)[1:].view(4, 5, 2)
    assert _names(describe("index_select", self=x, dim=1, index=torch.tensor([0])))[1].endswith("dense_32bit_long")


def test_a_result_that_begins_at_an_odd_place() -> None:
    """Slices of eight bytes, into memory that begins four behind one."""
    out = torch.zeros(41)[1:].view(4, 5, 2)
    x, index = torch.zeros(4, 5, 2), torch.zeros(5, dtype=torch.int64)
    assert (
        _names(describe("index_select", (out,), self=x, dim=1, index=index))[1] == "index_select_dim_dense_32bit_long"
    )
    assert _names(describe("index_select", self=x, dim=1, index=index))[1] == "index_select_dim_dense_64bit_long"


def test_indices_that_lie_apart() -> None:
    """Both launches are told how far."""
    index = torch.tensor([2, 9, 0, 9])[::2]
    check, copy = launches_of(describe("index_select", self=torch.zeros(3, 4), dim=0, index=index))
    assert check.buffers[1:] == (2, 3)
    assert (copy.kernel, copy.buffers[3]["index_stride"]) == ("index_select_dim_32bit_long", 2)


def test_slices_of_other_layouts() -> None:
    """The result has a thread an element, and its strides beside those of the tensor."""
    x = torch.zeros(2, 3, 4).transpose(0, 2)
    copy = launches_of(describe("index_select", self=x, dim=-1, index=torch.tensor([1, 0, 1])))[1]
    assert (copy.kernel, copy.threads) == ("index_select_dim_32bit_long", (36,))
    params = copy.buffers[3]
    assert (params["ndim"], params["reduce_dim"], params["index_stride"]) == (3, 2, 1)
    assert (params["self_strides"], params["source_sizes"]) == ((1, 4, 12), [4, 3, 3])


def test_slices_that_the_cpu_takes() -> None:
    """A name of a dimension, a matrix of indices, a number, and a result of another dtype."""
    x, index = torch.zeros(3, 4), torch.tensor([0])
    assert describe("index_select", self=x, dim="N", index=index) is None
    assert describe("index_select", self=x, dim=0, index=index.view(1, 1)) is None
    assert describe("index_select", self=x[0, 0], dim=0, index=index) is None
    assert describe("index_select", (torch.zeros(1, 4).half(),), self=x, dim=0, index=index) is None


def test_slices_are_added() -> None:
    """Into a copy of the tensor; the factor is of its type."""
    x, index, source = torch.zeros(3, 4), torch.tensor([2, 0]), torch.ones(2, 4)
    work = describe("index_add", self=x, dim=0, index=index, source=source, alpha=2)
    check, add = launches_of(work)
    assert work is not None
    assert work.results[0].data_ptr() != x.data_ptr()
    assert (check.kernel, add.kernel, add.threads) == ("index_check_bounds_long", "index_add_float_long", (8,))
    assert (add.buffers[0] is work.results[0], add.buffers[4]) == (True, 2)
    numbers = describe(
        "index_add", self=x.to(torch.complex64), dim=0, index=index, source=source.to(torch.complex64), alpha=2
    )
    assert repr(launches_of(numbers)[1].buffers[4]) == "(2+0j)"


def test_halves_at_few_places_are_added_in_float32() -> None:
    """From sixteen indices a place on; the sums are copied back."""
    x, index, source = torch.zeros(2, 3).half(), torch.zeros(32, dtype=torch.int64), torch.ones(32, 3).half()
    work = describe("index_add", self=x, dim=0, index=index, source=source, alpha=1)
    assert work is not None
    assert work.launches[1].kernel == "index_add_float_long"
    assert [(target is work.results[0], one.dtype) for target, one in work.copies] == [(True, torch.float32)]
    work = describe("index_add", self=x, dim=0, index=index[:31], source=source[:31], alpha=1)
    assert _names(work)[1] == "index_add_half_long"


def test_slices_that_do_not_fit() -> None:
    """Of another size, of another dtype, or by half a whole number."""
    x, index, source = torch.zeros(3, 4), torch.tensor([2, 0]), torch.ones(2, 4)
    given = {"self": x, "dim": 0, "index": index, "alpha": 1}
    assert describe("index_add", **given, source=source[:1]) is None
    assert describe("index_add", **given, source=source[:, :3]) is None
    assert describe("index_add", **given, source=source.half()) is None
    whole = {**given, "self": x.int(), "alpha": 0.5}
    assert describe("index_add", **whole, source=source.int()) is None


@pytest.mark.parametrize(("dtype", "shifts"), [(torch.float16, [8, 0]), (torch.int32, [24, 16, 8, 0])])
def test_a_median_of_all(dtype: torch.dtype, shifts: list[int]) -> None:
    """Eight bits a pass, the highest first: counted by groups of 256 threads, and picked by one thread."""
    launches = launches_of(describe("median", self=torch.zeros(30, 10, dtype=dtype)))
    counts, picks = launches[::2], launches[1::2]
    assert [one.buffers[4] for one in counts] == shifts
    assert [one.buffers[5] for one in counts] == [True] + [False] * (len(shifts) - 1)
    assert {(one.threads, one.group) for one in counts} == {((512, 1, 1), (256, 1, 1))}
    assert [one.buffers[5] for one in picks] == [False] * (len(shifts) - 1) + [True]
    assert {one.buffers[6] for one in picks} == {False}
    assert {one.buffers[6] for one in launches_of(describe("nanmedian", self=torch.zeros(3)))[1::2]} == {True}


def test_a_median_of_many() -> None:
    """No more than 256 groups of threads count."""
    first = launches_of(describe("median", self=torch.zeros(256 * 256 + 1, dtype=torch.int8)))[0]
    assert (first.threads, first.buffers[3]) == ((256 * 256, 1, 1), 256 * 256 + 1)


def test_a_median_along_a_dimension() -> None:
    """Floats are sorted, and a thread a row looks behind the NaNs; of integers it is the number at a place."""
    work = describe("median", release=LATER, self=torch.zeros(3, 50, 7), dim=1, keepdim=False)
    assert work is not None
    assert [one.kernel for one in work.launches] == ["sort_block_fkey_float_tptg32", "median_gather_float"]
    assert (work.launches[1].buffers[4:], work.launches[1].threads) == ((50, False), (21,))
    assert [(one.shape, one.dtype) for one in work.results] == [((3, 7), torch.float32), ((3, 7), torch.int64)]
    launch = launch_of(describe("median", release=LATER, self=torch.zeros(3, 50).int(), dim=1, keepdim=True))
    assert (launch.kernel, launch.buffers[6]) == ("sort_block_topk_int_tptg32", [24, 1])


def test_numbers_without_their_repetitions() -> None:
    """Sorted, marked, summed up in 64 bits, and written; then how many of each, and the places in what was sorted."""
    given = {"self": torch.tensor([[3.0, 1.0], [3.0, 2.0]]), "return_inverse": True, "return_counts": True}
    work = describe("_unique2", release=LATER, sorted=True, **given)
    assert work is not None
    assert [one.kernel for one in work.launches] == [
        "sort_block_fkey_float_tptg32",
        "unique_mark_boundaries_float",
        "cumsum_innermost_int_long",
        "unique_emit_float_64",
        "unique_counts",
        "unique_inverse_64",
    ]
    assert [tuple(one.shape) for one in work.results] == [(3,), (2, 2), (3,)]
    assert (work.launches[4].buffers[2:], work.launches[4].threads) == ((3, 4), (3,))


def test_what_finds_repetitions_is_told() -> None:
    """A thread for each number; the order of the sort says where a number was. A single one is copied."""
    given = {"return_inverse": True, "return_counts": True}
    work = describe("_unique2", release=LATER, sorted=True, self=torch.tensor([3.0, 1.0, 3.0, 2.0]), **given)
    sort, mark, sums, emit, count, invert = launches_of(work)
    assert (mark.threads, emit.threads, invert.threads) == ((4,), (4,), (4,))
    assert invert.buffers[0] is sort.buffers[2]
    assert invert.buffers[1] is emit.buffers[2]
    assert invert.buffers[1] is sums.buffers[1] or invert.buffers[1] is sums.buffers[0]
    assert count.buffers[0] is emit.buffers[4]
    assert describe("_unique2", release=LATER, sorted=True, self=torch.tensor([3.0]), **given) is None


def test_the_runs_that_numbers_are_of() -> None:
    """Counted from one on by the sums, and so less one."""
    given = {"return_inverse": True, "return_counts": False, "dim": None}
    work = describe("unique_consecutive", release=LATER, self=torch.tensor([3, 3, 1]), **given)
    less = launches_of(work)[-1]
    assert less.kernel == "sub_dense_scalar_long_long"
    assert [one.item() for one in less.buffers[2:]] == [1]
    assert work is not None
    assert work.results[1].shape == (3,)


def test_runs_of_equal_neighbours() -> None:
    """Nothing is sorted; truth values go as bytes, and what is not asked for is empty."""
    x = torch.tensor([True, True, False, True])
    given = {"self": x, "return_inverse": False, "return_counts": False, "dim": None}
    work = describe("unique_consecutive", release=LATER, **given)
    assert work is not None
    assert [one.kernel for one in work.launches] == [
        "unique_mark_boundaries_uchar",
        "cumsum_innermost_int_long",
        "unique_emit_uchar_64",
    ]
    assert [(one.dtype, one.numel()) for one in work.results] == [(torch.bool, 3), (torch.int64, 0), (torch.int64, 0)]
    assert describe("unique_consecutive", release=LATER, **{**given, "dim": 0}) is None
    assert describe("_unique2", release=LATER, sorted=True, **{**given, "self": x[:0], "dim": None}) is None


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
