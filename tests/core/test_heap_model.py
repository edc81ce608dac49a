"""The heap model: the allocator of every torch generation, in the numbers and texts that a Mac shows.

Sources of the rules: aten/src/ATen/mps/MPSAllocator.{h,mm} of torch 2.7 to 2.15; pytorch pulls 187441 and 190438 for
torch 2.14. The C++ sources are compiled alone, without torch, and driven through tests/native/heap_trace.cpp.
"""

from __future__ import annotations

import pytest

from heap_traces import ADVICE, EVERY, G1, G2, GIB, MIB, Run, config, counters, fields

# ---- what is accounted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", [G1, 12, G2])
def test_worked_example(run: Run, minor: int) -> None:
    """The counters follow the source's heap sizes: 8 MiB, 32 MiB, a dedicated heap and 1 GiB."""
    sizes = [4, 5 * MIB, 600 * MIB, 64 * MIB]
    lines = [config(minor), "stats"]
    for name, size in zip("abcd", sizes, strict=True):
        lines += [f"alloc {name} {size}", "stats"]
    lines += [f"free {name}" for name in "abcd"] + ["stats", "empty", "stats"]
    got = [counters(answer) for answer in run(*lines) if answer.startswith("stats")]
    current = [256, 256 + 5_242_880, 256 + 5_242_880 + 629_145_600, 256 + 5_242_880 + 629_145_600 + 67_108_864]
    totals = [8 * MIB, 40 * MIB, 640 * MIB, 1664 * MIB]
    assert got == [(0, 0), *zip(current, totals, strict=True), (0, totals[-1]), (0, 0)]


@EVERY
def test_zero_bytes_are_not_accounted(run: Run, minor: int) -> None:
    """A request of 0 bytes gives no block and moves no counter."""
    block, stats = run(config(minor), "alloc a 0", "stats")[1:]
    assert block == "block"
    assert counters(stats) == (0, 0)


@EVERY
def test_invalid_buffer_size(run: Run, minor: int) -> None:
    """A request must be smaller than maxBufferLength; the requested size is printed."""
    unit = "GB" if minor == 7 else "GiB"
    answers = run(config(minor, max_buffer=2 * GIB), f"alloc a {2 * GIB}", f"alloc b {2 * GIB - 1}")
    assert answers[1] == f"error InvalidBufferSize: Invalid buffer size: 2.00 {unit}"
    assert answers[2].startswith("block id=")


@EVERY
def test_statistics_of_torch_accelerator(run: Run, minor: int) -> None:
    """Peaks and accumulated sums are kept like c10's Stat and are reset apart."""
    lines = [f"alloc a {3 * MIB}", "alloc b 1", "free a", "empty", "stats"]
    lines += ["reset_peak", "stats", "reset_accumulated", "stats"]
    answers = run(config(minor), *lines)
    keys = ("peak_current", "peak_total", "allocated", "freed", "reserved", "returned", "live")
    first, second, third = (tuple(fields(answers[i])[key] for key in keys) for i in (5, 7, 9))
    large, all_ = 3 * MIB, 3 * MIB + 256
    assert first == (all_, 40 * MIB, all_, large, 40 * MIB, 32 * MIB, 1)
    assert second == (256, 8 * MIB, all_, large, 40 * MIB, 32 * MIB, 1)
    assert third == (256, 8 * MIB, 0, 0, 0, 0, 1)


# ---- public figures -------------------------------------------------------------------------------------------------


def test_24_gb_mac_fails_at_30_19_gib(run: Run) -> None:
    """A 24 GB Mac (pytorch issue 189215) with 29.73 GiB in use refuses 2 GiB of float32 logits at 30.19 GiB."""
    recommended, max_buffer = int(17.760009765625 * GIB), int(13.32000732421875 * GIB)
    logits = 8 * 2048 * 32768 * 4  # batch, sequence, padded vocabulary of the public nanochat log
    lines = [config(G2, recommended, max_buffer)]
    lines += [f"alloc t{i} {logits}" for i in range(14)] + [f"alloc rest {1772 * MIB}"]
    answers = run(*lines, f"alloc last {logits}")
    assert answers[-1] == (
        "error OutOfMemory: MPS backend out of memory (MPS allocated: 29.73 GiB, other allocations: 0 bytes, "
        f"max allowed: 30.19 GiB). Tried to allocate 2.00 GiB on shared pool.{ADVICE}"
    )


def test_16_gb_m1_allows_18_13_gb(run: Run) -> None:
    """A 16 GB M1 on macOS 13 allows 18.13 GB, in the words of torch 2.7."""
    answers = run(config(7, 11_453_251_584, 8_589_934_592), *(f"alloc t{i} {3 * GIB}" for i in range(7)))
    assert answers[-1] == (
        "error OutOfMemory: MPS backend out of memory (MPS allocated: 18.00 GB, other allocations: 0 bytes, "
        f"max allowed: 18.13 GB). Tried to allocate 3.00 GB on private pool.{ADVICE}"
    )


def test_16_gb_m2_with_5000_mb_held_fails_for_a_linear_of_512(run: Run) -> None:
    """With 5000 MB held, layers of 512 x 512 fit until 18.13 GB are taken; the one that does not asks for 1024 KB."""
    held = [f"alloc held {5000 * MIB}"]
    layers = [line for i in range(14_000) for line in (f"alloc weight{i} {512 * 512 * 4}", f"alloc bias{i} {512 * 4}")]
    answers = run(config(7, 11_453_251_584, 8_589_934_592), *held, *layers)
    refused = next(answer for answer in answers if answer.startswith("error"))
    assert refused == (
        "error OutOfMemory: MPS backend out of memory (MPS allocated: 18.13 GB, other allocations: 0 bytes, "
        f"max allowed: 18.13 GB). Tried to allocate 1024.00 KB on private pool.{ADVICE}"
    )


@pytest.mark.parametrize(
    ("size", "minor", "text"),
    [
        (0, 13, "0 bytes"),
        (512, 13, "512 bytes"),
        (1024, 13, "1024 bytes"),
        (1025, 13, "1.00 KiB"),
        (1_048_576, 13, "1024.00 KiB"),
        (1_048_577, 13, "1.00 MiB"),
        (1_572_864, 8, "1.50 MiB"),
        (1_572_864, 7, "1.50 MB"),
        (1_073_741_824, 13, "1024.00 MiB"),
        (1_073_741_825, 13, "1.00 GiB"),
        (19_470_527_692, 8, "18.13 GiB"),
        (19_470_527_692, 7, "18.13 GB"),
        (2048, 7, "2.00 KB"),
        (629_538_784, 8, "600.37 MiB"),
        (629_538_784, 7, "600.38 MB"),  # narrowed to float first
    ],
)
def test_size_text(run: Run, size: int, minor: int, text: str) -> None:
    """Sizes are printed as the messages of that release print them."""
    assert run(f"format {size} {minor}") == [text]
