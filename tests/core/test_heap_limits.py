"""The limits of the heap model: watermarks, running out of memory, pressure and garbage collection."""

from __future__ import annotations

import math

import pytest

from heap_traces import ADVICE, EVERY, G1, G3, GIB, MIB, UNLIMITED, Run, config, counters, fields


@EVERY
def test_limits_are_floored(run: Run, minor: int) -> None:
    """The limits are the ratios times the recommended size, without the fraction of a byte."""
    values = fields(run(config(minor, 40_200_896_512), "stats")[1])
    assert (values["high_limit"], values["low_limit"]) == (68_341_524_070, 56_281_255_116)


@EVERY
def test_ratio_zero_is_unlimited(run: Run, minor: int) -> None:
    """A ratio of 0, or text that is no number, means no limit."""
    values = fields(run(config(minor, high="none", low="0"), "stats")[1])
    assert (values["high_limit"], values["low_limit"]) == (UNLIMITED, UNLIMITED)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.8", "0.8"), ("80%", "80"), ("abc", "0"), (" 1.5x", "1.5"), ("1e-1", "0.1"), ("0x1p-1", "0.5")],
)
def test_ratio_text_is_read_by_strtod(run: Run, text: str, value: str) -> None:
    """The variables are read as C reads numbers: a leading number counts, other text is 0."""
    assert run(f"ratio {text}") == [value]


@EVERY
@pytest.mark.parametrize(
    ("high", "low", "text"),
    [
        (2.5, "-", "invalid high watermark ratio 2.5"),
        (-0.1, "-", "invalid high watermark ratio -0.1"),
        ("nan", "-", "invalid high watermark ratio nan"),
        (1.0, "-", "invalid low watermark ratio 1.4"),
        (1.0, 1.00001, "invalid low watermark ratio 1.00001"),
        (0, 2.5, "invalid low watermark ratio 2.5"),
        (1.7, -1, "invalid low watermark ratio -1"),
    ],
)
def test_ratios_are_validated(run: Run, minor: int, high: float | str, low: float | str, text: str) -> None:
    """A high ratio outside 0 to 2, or a low one above the high one, is refused with torch's text."""
    assert run(config(minor, high=high, low=low)) == [f"error InvalidSetting: {text}"]


@EVERY
@pytest.mark.parametrize(("high", "low"), [(2, 2), (0, 2), (1.4, "-"), (0, 0)])
def test_edge_ratios_are_accepted(run: Run, minor: int, high: float, low: float | str) -> None:
    """The bounds themselves are allowed; with the high limit off the low ratio may reach 2."""
    assert run(config(minor, high=high, low=low)) == ["ok"]


@pytest.mark.parametrize("minor", [13, 14, 15])
def test_unified_memory_is_required_from_2_13(run: Run, minor: int) -> None:
    """From 2.13 the allocator refuses a GPU without unified memory."""
    expected = "error InvalidSetting: MPS backend is only supported on devices with unified memory"
    assert run(config(minor, extra="unified=0")) == [expected]


def test_generation_must_fit_the_release(run: Run) -> None:
    """A release of another generation, an unknown release, or use before configuration is our own error."""
    assert run("config G1 13 1000 1000 - -", "config G3 16 1000 1000 - -", "config G1 6 1 1 - -", "alloc a 1") == [
        "error exception: heap model: torch 2.13 has an allocator of another generation",
        "error exception: heap model: the allocator of torch 2.16 is not known (2.7 to 2.15 are)",
        "error exception: heap model: the allocator of torch 2.6 is not known (2.7 to 2.15 are)",
        "error exception: heap model: used before it was configured",
    ]


def test_configuring_again(run: Run) -> None:
    """A model starts afresh when configured again, but not while blocks are live."""
    again = config(G3).replace("config", "reconfig")
    answers = run(config(G1), "alloc a 9", again, "free a", again, "stats", "alloc b 9")
    assert answers[2] == "error exception: heap model: configured again while blocks are live"
    assert answers[4] == "ok"
    assert counters(answers[5]) == (0, 0)
    assert fields(answers[6])["shared"] == 1


@pytest.mark.parametrize(
    ("minor", "unit", "pool"),
    [(7, "MB", "private"), (11, "MiB", "private"), (13, "MiB", "shared"), (15, "MiB", "shared")],
)
def test_out_of_memory_text(run: Run, minor: int, unit: str, pool: str) -> None:
    """The text names heap bytes, the rest of the process, the limit, the aligned size and the pool."""
    head = config(minor, 600 * MIB, high=1, low=0.5, extra=f"baseline={3 * MIB}")
    answers = run(head, f"alloc a {500 * MIB}", f"alloc b {200 * MIB - 100}", "stats")
    assert answers[2] == (
        f"error OutOfMemory: MPS backend out of memory (MPS allocated: 1024.00 {unit}, other allocations: 3.00 {unit}, "
        f"max allowed: 600.00 {unit}). Tried to allocate 200.00 {unit} on {pool} pool.{ADVICE}"
    )
    assert counters(answers[3])[1] == GIB


@pytest.mark.parametrize("minor", [7, 11])
def test_g1_out_of_memory_of_eight_bytes_names_the_shared_pool(run: Run, minor: int) -> None:
    """Up to 2.11 a failing scalar is the one request that names the shared pool, at 256 bytes."""
    unit = "MB" if minor == 7 else "MiB"
    answers = run(config(minor, 8 * MIB, high=1, low=1), "alloc a 9", "alloc b 4")
    assert answers[2] == (
        f"error OutOfMemory: MPS backend out of memory (MPS allocated: 8.00 {unit}, other allocations: 0 bytes, "
        f"max allowed: 8.00 {unit}). Tried to allocate 256 bytes on shared pool.{ADVICE}"
    )


@EVERY
def test_out_of_memory_text_without_limit(run: Run, minor: int) -> None:
    """Without a high limit the text has neither the limit nor the advice; Metal's refusal of a heap causes it."""
    unit, pool = ("MB", "private") if minor == 7 else ("MiB", "private" if minor <= 11 else "shared")
    head = config(minor, GIB, high=0, extra=f"metal_limit={40 * MIB}")
    assert run(head, f"alloc a {5 * MIB}", f"alloc b {40 * MIB}")[2] == (
        f"error OutOfMemory: MPS backend out of memory (MPS allocated: 32.00 {unit}, other allocations: 0 bytes). "
        f"Tried to allocate 40.00 {unit} on {pool} pool."
    )


@EVERY
def test_memory_fraction_sets_the_high_limit_alone(run: Run, minor: int) -> None:
    """A fraction changes the high limit, frees nothing and may pass below the low ratio; 0 lifts the limit."""
    lines = [config(minor, GIB), f"alloc a {5 * MIB}", "free a", "fraction 0.03", "stats", f"alloc b {5 * MIB}"]
    answers = run(*lines, "fraction 0", "stats", "fraction 2.5", "fraction nan")
    first, second = fields(answers[4]), fields(answers[7])
    assert (first["high_limit"], first["low_limit"]) == (math.floor(0.03 * GIB), math.floor(1.4 * GIB))
    assert first["total"] == 32 * MIB
    assert answers[5].startswith("block id=")  # the cached heap was given back first: 5 MiB fit in 30.72
    assert second["high_limit"] == UNLIMITED
    assert answers[8:] == [
        "error InvalidSetting: invalid high watermark ratio 2.5",
        "error InvalidSetting: invalid high watermark ratio nan",
    ]
