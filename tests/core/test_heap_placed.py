"""Heaps whose blocks the allocator places itself, from torch 2.14 on: buckets, cuts and merges."""

from __future__ import annotations

import pytest

from heap_traces import GIB, MIB, PLACED, Run, config, counters, fields


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
def test_g3_cuts_a_small_block(run: Run, minor: int) -> None:
    """A cached small block is cut when 256 bytes or more remain, and its parts are new buffers."""
    lines = [config(minor), "alloc a 1024", "alloc z 1", "free a", "alloc b 512", "alloc c 300", "stats"]
    answers = run(*lines)
    second, third = fields(answers[4]), fields(answers[5])
    assert [(b["id"], b["size"], b["offset"]) for b in (second, third)] == [(3, 512, 0), (4, 512, 512)]
    assert counters(answers[6]) == (1280, 8 * MIB)


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


@PLACED
def test_g3_merges_neighbours(run: Run, minor: int) -> None:
    """Adjacent free blocks become one when no single one fits: 6 and 8 MiB serve 9.25 MiB."""
    lines = [config(minor), f"alloc a {6 * MIB}", f"alloc b {8 * MIB}", f"alloc c {8 * MIB}", f"alloc d {9 * MIB}"]
    lines += ["free a", "free b", f"alloc e {9 * MIB + 262144}", "stats"]
    answers = run(*lines)
    merged = fields(answers[7])
    assert (merged["id"], merged["heap"], merged["offset"], merged["size"]) == (5, 1, 0, 9 * MIB + 262144)
    assert counters(answers[8])[1] == 32 * MIB
