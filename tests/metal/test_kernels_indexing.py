"""Reads and writes by tensors of indices: names, arguments and grids, described without the kernels."""

from __future__ import annotations

import torch

from described import describe, launch_of

LINES = torch.tensor([[0, -1, 2], [1, 1, 0]])


def test_a_read_at_indices() -> None:
    """The source stands still where an index moves; sizes come innermost first, strides in bytes."""
    x = torch.ones(3, 4, 5)
    work = describe("index", self=x, indices=[None, LINES])
    launch = launch_of(work)
    assert work is not None
    assert work.results[0].shape == (3, 2, 3, 5)
    assert (launch.kernel, launch.threads, launch.errors) == ("index_select_32bit", (90,), 10)
    assert launch.buffers[3:7] == ([5, 3, 2, 3], [4, 20, 60, 120], [4, 0, 0, 80], [0, 8, 24, 0])
    assert launch.buffers[7:] == ([4], [20], [4, 1, 90, 0])
    (one,) = launch.buffers[2]
    assert torch.equal(one["indexArray"][0], LINES[None, :, :, None].expand(3, 2, 3, 5))


def test_indices_apart_come_first() -> None:
    """The dimensions of two indices with a dimension between them; both are broadcast, as int64."""
    x = torch.ones(3, 4, 5, dtype=torch.float16)
    work = describe("index", self=x, indices=[LINES.int(), None, torch.tensor([1, 0, 4])])
    launch = launch_of(work)
    assert work is not None
    assert work.results[0].shape == (2, 3, 4)
    assert launch.kernel == "index_select_16bit"
    assert launch.buffers[5] == [10, 0, 0]
    assert launch.buffers[7:] == ([3, 5], [40, 2], [3, 2, 24, 0])
    assert [one["indexArray"][0].dtype for one in launch.buffers[2]] == [torch.int64] * 2


def test_a_write_at_indices() -> None:
    """In place, of the bits of a number; adding goes by its type."""
    x, rows = torch.ones(3, 4), torch.tensor([2, 0])
    given = {"self": x, "indices": [rows], "values": torch.ones(4), "accumulate": False, "unsafe": False}
    work = describe("_index_put_impl_", (x,), **given)
    launch = launch_of(work)
    assert work is not None
    assert work.results[0] is x
    assert launch.buffers[0] is x
    assert (launch.kernel, launch.threads) == ("index_put_32bit", (8,))
    assert launch.buffers[3:7] == ([4, 2], [4, 0], [4, 0], [0, 8])
    assert launch.buffers[7:] == ([3], [16], [2, 1, 8, 0])
    launch = launch_of(describe("_index_put_impl_", (x,), **{**given, "accumulate": True}))
    assert launch.kernel == "index_put_accumulate_float"


def test_indices_that_the_cpu_takes() -> None:
    """Masks, what does not fit, memory that is both read and written, and other releases."""
    x, rows = torch.ones(3, 4), torch.tensor([2, 0])
    assert describe("index", self=x, indices=[x[:, 0] > 0]) is None
    assert describe("index", self=x, indices=[rows, torch.tensor([0, 1, 2])]) is None
    assert describe("index", self=x.t(), indices=[rows]) is None
    assert describe("index", release=(2, 14), self=x, indices=[rows]) is None
    given = {"self": x, "indices": [rows], "values": torch.ones(3), "accumulate": False, "unsafe": False}
    assert describe("_index_put_impl_", (x,), **given) is None
    assert describe("_index_put_impl_", (x,), **{**given, "values": x[0]}) is None
    wide = torch.ones(4).expand(3, 4)
    assert describe("_index_put_impl_", (wide,), **{**given, "self": wide, "values": torch.ones(4)}) is None
