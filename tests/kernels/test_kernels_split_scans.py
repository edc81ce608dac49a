"""Launches of sums and products that several groups of threads share, or of which a group takes many."""

from __future__ import annotations

import pytest
import torch

from anymps.kernels.launches import DESCRIBED, KernelCall, Launch
from described import EveryKernel


def launches(x: torch.Tensor, dim: int, looks_back: bool = True, kernel: str = "cumsum") -> tuple[Launch, ...]:
    """Those of a call, on a Mac whose groups may wait for one another or not."""
    call = KernelCall({"self": x, "dim": dim}, (), frozenset(), EveryKernel(), (2, 13), looks_back)
    return DESCRIBED[kernel](call).launches


def test_many_short_rows() -> None:
    """As many rows a group as fit into 2048 numbers."""
    (launch,) = launches(torch.ones(4096, 17), 1)
    assert (launch.kernel, launch.buffers[2:]) == ("cumsum_tiny_innermost_float", (17, 4096, 120))
    assert (launch.threads, launch.group) == ((256 * 35,), (256,))
    assert launches(torch.ones(4095, 17), 1)[0].kernel == "cumsum_innermost_float"


def test_transposed() -> None:
    """Read where it lies, from 256 columns on."""
    (launch,) = launches(torch.ones(70, 300).t(), 1)
    assert (launch.kernel, launch.buffers[2:]) == ("cumsum_innermost_transposed_float", (70, 300, 10))
    assert (launch.threads, launch.group) == ((256, 10, 1), (256, 1, 1))


def test_long_rows_that_look_back() -> None:
    """A counter, and two places a tile that hold a sign that nothing was written."""
    (launch,) = launches(torch.ones(2, 1 << 16), 1)
    counter, aggregates, inclusive, count, tiles = launch.buffers[2:]
    assert (launch.kernel, count, tiles) == ("cumsum_contig_decoupled_float", 1 << 16, 16)
    assert (counter.tolist(), set(aggregates.tolist()), inclusive.shape) == ([0], {-1}, (32,))
    assert (launch.threads, launch.group) == ((256 * 32,), (256,))


@pytest.mark.parametrize(("dtype", "of"), [(torch.int64, "long"), (torch.int32, "int_long"), (torch.float32, "float")])
def test_long_rows_in_blocks(dtype: torch.dtype, of: str) -> None:
    """Integers everywhere, floats where groups must not wait for one another."""
    reduce, carry = launches(torch.ones(2, 1 << 16, dtype=dtype), 1, looks_back=False)
    assert (reduce.kernel, carry.kernel) == (f"cumsum_block_reduce_{of}", f"cumsum_block_carry_{of}")
    assert reduce.buffers[2:] == carry.buffers[3:] == (1 << 16, 1024, 64)
    assert (reduce.threads, carry.group) == ((256 * 64, 2, 1), (256, 1, 1))
    assert reduce.buffers[1] is carry.buffers[2]
    assert launches(torch.ones(2, 1 << 16, dtype=torch.int64), 1)[0].kernel == "cumsum_block_reduce_long"


def test_programs_that_ask_for_the_same_bits_each_time() -> None:
    """The order in which groups come by their sums does not count then."""
    torch.use_deterministic_algorithms(True)
    try:
        assert launches(torch.ones(1, 1 << 16), 1)[0].kernel == "cumsum_block_reduce_float"
    finally:
        torch.use_deterministic_algorithms(False)


def test_long_columns_that_look_back() -> None:
    """Of 2, 4, 8 and 16 columns."""
    (launch,) = launches(torch.ones(2, 3000, 4), 1)
    assert (launch.kernel, launch.buffers[-2:]) == ("cumsum_strided_decoupled_4_4_float", (3000, 2))
    assert [one.numel() for one in launch.buffers[2:6]] == [1, 4, 16, 16]
    assert (launch.threads, launch.group) == ((512 * 4,), (512,))


def test_few_long_columns_in_blocks() -> None:
    """A thread reads all columns."""
    reduce, carry = launches(torch.ones(2, 3000, 5), 1)
    assert (reduce.kernel, carry.kernel) == ("cumsum_vec_block_reduce_5_float", "cumsum_vec_block_carry_5_float")
    assert reduce.buffers[2:] == carry.buffers[3:] == (3000, 512, 6, 2)
    assert (reduce.threads, reduce.group, reduce.buffers[1].numel()) == ((64, 12, 1), (64, 1, 1), 60)


def test_long_columns_in_blocks() -> None:
    """Partial sums are scanned by a launch of their own."""
    reduce, sums, carry = launches(torch.ones(2, 3000, 11), 1)
    assert [one.kernel for one in (reduce, sums, carry)] == [
        "cumsum_strided_block_reduce_12_float",
        "cumsum_scan_block_sums_float",
        "cumsum_strided_block_carry_12_float",
    ]
    assert reduce.buffers[2:] == carry.buffers[3:] == (3000, 11, 1, 608, 5, 2)
    assert (sums.buffers[0] is reduce.buffers[1], sums.buffers[1], sums.threads) == (True, 5, (256, 22, 1))
    assert (reduce.threads, reduce.group) == ((96, 10, 1), (96, 1, 1))
    integers = launches(torch.ones(2, 3000, 11, dtype=torch.int64), 1)
    assert integers[0].kernel == "cumsum_strided_block_reduce_16_long"


def test_columns_enough_for_every_group() -> None:
    """More than 64 groups have work of their own: one launch."""
    (launch,) = launches(torch.ones(65, 1024, 5), 1)
    assert launch.kernel == "cumsum_outer_float"
