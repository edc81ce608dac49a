"""Heaps whose blocks the allocator places itself, from torch 2.14 on: buckets, cuts and merges."""

from __future__ import annotations

import pytest

from heap_traces import GIB, MIB, PLACED, Run, config, fields


@PLACED
@pytest.mark.parametrize(
    ("nbytes", "charged"),
    [
        (MIB + 1, MIB + 32768),  # granule 1 MiB / 32
        (2 * MIB, 2 * MIB),
        (2 * MIB + 1, 2 * MIB + 65536),
        (3 * MIB + 1, 3 * MIB + 65536),
        (10 * MIB - 300, 10 * MIB - 256),  # the bucket would leave the 32 MiB tier
        (10 * MIB + 1, 10 * MIB + 262144),
        (512 * MIB - 300, 512 * MIB - 256),  # the bucket would leave the 1 GiB tier
        (600 * MIB, 608 * MIB),
        (2 * GIB - 3 * MIB // 2, 2 * GIB - 3 * MIB // 2),  # the bucket would reach maxBufferLength
    ],
)
def test_g3_buckets(run: Run, minor: int, nbytes: int, charged: int) -> None:
    """From 2.14 large requests round up to 32 steps per power of two within their tier and Metal's limit."""
    assert fields(run(config(minor, max_buffer=2 * GIB), f"alloc a {nbytes}")[1])["size"] == charged


@PLACED
@pytest.mark.parametrize(
    ("nbytes", "buffer", "charged"),
    [
        (13 * MIB // 4, 3, 4 * MIB),  # 0.75 MiB too large
        (3 * MIB, 6, 7 * MIB // 2),  # 1 MiB too large: now the tightest range wins
    ],
)
def test_g3_prefers_a_cached_buffer_that_needs_no_cut(
    run: Run, minor: int, nbytes: int, buffer: int, charged: int
) -> None:
    """A cached buffer less than 1 MiB too large wins over a tighter range without a buffer."""
    lines = [config(minor), f"alloc a {11 * MIB // 2}", f"alloc s {3 * MIB // 2}", f"alloc p {4 * MIB}"]
    lines += ["alloc t 2000000", "free a", f"alloc c {2 * MIB}", "free p", f"alloc r {nbytes}"]
    answers = run(*lines)
    cut, taken = fields(answers[6]), fields(answers[8])
    assert (cut["offset"], cut["size"]) == (0, 2 * MIB)  # leaves the range of 3.5 MiB
    assert (taken["id"], taken["size"]) == (buffer, charged)
