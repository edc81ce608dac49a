"""The limits of the heap model: watermarks, running out of memory, pressure and garbage collection."""

from __future__ import annotations

import math

import pytest

from heap_traces import ADVICE, EVERY, G1, G3, GIB, MIB, PLACED, UNLIMITED, WHOLE_BUFFERS, Run, config, counters, fields


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
def test_the_limit_counts_the_request_not_its_heap(run: Run, minor: int) -> None:
    """A new heap may pass the high limit as long as the request alone does not."""
    answers = run(config(minor, 100 * MIB, high=1, low=1), f"alloc a {20 * MIB}", "stats", f"alloc b {20 * MIB}")
    assert counters(answers[2])[1] == GIB
    assert answers[3].startswith("error OutOfMemory: ")


@EVERY
@pytest.mark.parametrize(("spare", "fits"), [(256, True), (255, False)])
def test_the_limit_itself_may_be_reached(run: Run, minor: int, spare: int, fits: bool) -> None:
    """A request is refused only if it would pass the limit, not if it meets it."""
    answers = run(config(minor, 8 * MIB + spare, high=1, low=0), "alloc a 9", "alloc b 9")
    assert answers[2].startswith("block id=") == fits


@EVERY
def test_free_memory_is_released_before_giving_up(run: Run, minor: int) -> None:
    """At the limit cached heaps are returned before a request fails; from 2.14 its own pool's heaps come first."""
    lines = [config(minor, 40 * MIB, high=1, low=1), "alloc a 9", f"alloc b {5 * MIB}", "free a", "free b", "stats"]
    answers = run(*lines, f"alloc c {20 * MIB}", "stats")
    assert counters(answers[5]) == (0, 40 * MIB)
    assert counters(answers[7]) == (20 * MIB, 28 * MIB if minor >= 14 else 20 * MIB)


@EVERY
def test_every_pool_is_emptied_before_giving_up(run: Run, minor: int) -> None:
    """When its own pool cannot help, a request still gets the memory that other pools have cached."""
    answers = run(config(minor, 24 * MIB, high=1, low=0), "alloc a 9", "free a", f"alloc b {20 * MIB}", "stats")
    assert counters(answers[4]) == (20 * MIB, GIB)


@WHOLE_BUFFERS
def test_one_fitting_buffer_is_released_first(run: Run, minor: int) -> None:
    """At the limit, the smallest cached buffer that fits is released alone if that suffices."""
    lines = [config(minor, 2000 * MIB, high=1, low=0)]
    lines += [f"alloc {name} {size * MIB}" for name, size in (("a", 600), ("b", 620), ("c", 640))]
    lines += ["free a", "free b", "free c", f"alloc d {601 * MIB}", "stats"]
    answers = run(*lines)
    assert fields(answers[7])["heap_size"] == 602 * MIB
    assert counters(answers[8]) == (601 * MIB, (600 + 602 + 640) * MIB)


@WHOLE_BUFFERS
def test_largest_buffers_are_released_until_they_add_up(run: Run, minor: int) -> None:
    """With no buffer that fits, the largest ones go first, until their sum reaches the request."""
    lines = [config(minor, 2000 * MIB, high=1, low=0)]
    lines += [f"alloc {name} {size * MIB}" for name, size in (("a", 600), ("b", 620), ("c", 640))]
    lines += ["free a", "free b", "free c", f"alloc d {1200 * MIB}", "stats"]
    assert counters(run(*lines)[-1]) == (1200 * MIB, 1800 * MIB)


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


# ---- pressure and garbage collection --------------------------------------------------------------------------------


@EVERY
def test_pressure_makes_heaps_to_measure(run: Run, minor: int) -> None:
    """At the low limit a request of 10 MiB or more gets a dedicated heap; smaller ones keep their tiers."""
    lines = [config(minor, GIB, high=2, low=0.5), f"alloc a {512 * MIB}", f"alloc b {21 * MIB}", f"alloc c {5 * MIB}"]
    assert [fields(answer)["heap_size"] for answer in run(*lines)[2:]] == [22 * MIB, 32 * MIB]


@EVERY
@pytest.mark.parametrize(("baseline", "heap"), [(MIB, GIB), (MIB + 1, 20 * MIB)])
def test_pressure_begins_less_than_a_mib_below_the_limit(run: Run, minor: int, baseline: int, heap: int) -> None:
    """The distance to the low limit is counted in whole MiB."""
    answers = run(config(minor, 2 * MIB, high=0, low=1, extra=f"baseline={baseline}"), f"alloc a {20 * MIB}")
    assert fields(answers[1])["heap_size"] == heap


@WHOLE_BUFFERS
def test_garbage_collection_takes_aged_buffers(run: Run, minor: int) -> None:
    """Under pressure, buffers passed over at least as often as the mean go in order of size, until enough went."""
    lines = [config(minor, 1000 * MIB, high=0, low=1.7), f"alloc s {2 * MIB}"]  # ids 1 to 4, heaps 32 + 1590 MiB
    lines += [f"alloc {name} {size * MIB}" for name, size in (("a", 540), ("b", 520), ("c", 530))]
    # Each request for the large pool ages what is free: at the collection a has 4, c 3 and b 2.
    lines += ["free a", f"alloc x {2 * MIB}", "free c", f"alloc y {2 * MIB}", "free b", f"alloc p {600 * MIB}", "stats"]
    # 2222 MiB of heaps against a limit of 1700: 522 are wanted. b is too young, c suffices, a stays.
    lines += [f"alloc q {700 * MIB}", "stats", f"alloc d {520 * MIB}", f"alloc e {540 * MIB}"]
    answers = run(*lines)
    assert counters(answers[11])[1] == 2222 * MIB
    assert counters(answers[13]) == ((6 + 600 + 700) * MIB, (2222 - 530 + 700) * MIB)
    assert [fields(answer)["id"] for answer in answers[14:]] == [3, 2]


@EVERY
def test_collection_at_the_limit_itself_takes_nothing(run: Run, minor: int) -> None:
    """With heaps of exactly the low limit there is pressure, but nothing to reclaim."""
    lines = [config(minor, 1072 * MIB, high=0, low=1), f"alloc a {528 * MIB}", f"alloc b {544 * MIB}"]
    lines += ["free a", "free b", f"alloc c {560 * MIB}", "stats"]
    assert counters(run(*lines)[-1]) == (560 * MIB, (528 + 544 + 560) * MIB)


@WHOLE_BUFFERS
def test_no_collection_after_room_was_made(run: Run, minor: int) -> None:
    """An oversized buffer that went back to its heap relieves the pressure: nothing else is collected."""
    lines = [config(minor, 1000 * MIB, high=0, low=1), f"alloc a {600 * MIB}", f"alloc b {700 * MIB}"]
    lines += ["free a", "free b", f"alloc c {10 * MIB}", "stats"]
    answers = run(*lines)
    assert (fields(answers[5])["heap"], fields(answers[5])["offset"]) == (1, 0)
    assert counters(answers[6]) == (10 * MIB, 1300 * MIB)


@WHOLE_BUFFERS
def test_garbage_collection_leaves_packed_heaps(run: Run, minor: int) -> None:
    """Collection empties a packed heap but keeps it, and emptying the cache does not find it again."""
    lines = [config(minor, 1000 * MIB, high=0, low=1.5), *(f"alloc {name} {400 * MIB}" for name in "abcd")]  # 2 heaps
    lines += [*(f"free {name}" for name in "abcd"), f"alloc e {1100 * MIB}", "stats", "free e", "empty", "stats"]
    answers = run(*lines)
    assert counters(answers[10]) == (1100 * MIB, (2048 + 1100) * MIB)
    assert counters(answers[13]) == (0, GIB)


@WHOLE_BUFFERS
def test_no_collection_without_a_low_limit(run: Run, minor: int) -> None:
    """A low ratio of 0 turns pressure and collection off."""
    lines = [config(minor, 1000 * MIB, high=0, low=0), f"alloc a {540 * MIB}", "free a", f"alloc b {560 * MIB}"]
    assert counters(run(*lines, "stats")[-1]) == (560 * MIB, 1100 * MIB)


@PLACED
def test_g3_collection_releases_the_oldest_free_heaps(run: Run, minor: int) -> None:
    """From 2.14 collection returns whole free heaps, oldest first, until enough went."""
    lines = [config(minor, 1000 * MIB, high=0, low=1.2)]
    lines += [f"alloc {name} {size * MIB}" for name, size in (("a", 528), ("b", 544), ("c", 560))]  # 432 too many
    lines += ["free b", "free a", "free c", f"alloc d {576 * MIB}", "stats"]
    assert counters(run(*lines)[-1]) == (576 * MIB, (544 + 560 + 576) * MIB)
