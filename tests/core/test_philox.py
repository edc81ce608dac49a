"""The Metal Philox stream of torch 2.13 and later: numbers, offsets and state against a second implementation.

Sources of the rules: c10/metal/random.h of the torch 2.13 wheel; pytorch's Distributions.metal and Distributions.mm.
The C++ sources are compiled alone, without torch, and driven through tests/native/philox_trace.cpp. The golden values
were computed by tests/reference_philox.py, not recorded on a Mac.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from philox_traces import (
    FLOATING,
    GOLDEN,
    SEEDS,
    SIZES,
    TYPES,
    Send,
    assert_close,
    draw,
    exactly,
    expected,
    numbers,
)
from reference_philox import BYTES, block, narrow, philox, unit

# ---------------------------------------------------------------------------------------------------------- engine


def test_reference_is_philox() -> None:
    """The reference gives the published known answers of Philox-4x32-10 (Random123) when it runs ten rounds."""
    full = 2**32 - 1
    zeros = philox((0, 0, 0, 0), (0, 0), 10)
    ones = philox((full, full, full, full), (full, full), 10)
    digits = philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), 10)
    assert zeros == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert ones == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert digits == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_blocks_equal_the_reference(send: Send) -> None:
    """Blocks agree bit by bit, also for seeds and indices beyond 32 bits."""
    draws = random.Random(7)
    pairs = [(seed, index) for seed in SEEDS for index in (0, 1, 2**32 - 1, 2**32, 2**64 - 1)]
    pairs += [(draws.getrandbits(64), draws.getrandbits(64)) for _ in range(200)]
    answers = send(*(f"block {seed} {index}" for seed, index in pairs))
    assert [block(*pair) for pair in pairs] == [tuple(map(int, answer.split())) for answer in answers]


def test_a_block_has_nine_rounds(send: Send) -> None:
    """A block is not one of the standard ten-round stream."""
    (answer,) = send("block 0 0")
    assert philox((0, 0, 0, 0), (0, 0), 9) == tuple(map(int, answer.split()))
    assert philox((0, 0, 0, 0), (0, 0), 10) != tuple(map(int, answer.split()))


def test_unit_uses_31_bits_and_stays_below_one(send: Send) -> None:
    """A word's top bit is dropped and the largest uniform is the float before 1."""
    words = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x40000000, 0x7FFFFFBF, 123456789]
    got = [float.fromhex(answer) for answer in send(*(f"unit {word}" for word in words))]
    assert [float(unit(word)) for word in words] == got
    assert [got[0], got[2], got[3], got[4]] == [0.0, 1 - 2**-24, 0.0, 1 - 2**-24]


@pytest.mark.parametrize("seed", GOLDEN)
def test_golden_uniforms(send: Send, seed: int) -> None:
    """The first eight uniforms of a seed never change."""
    wanted = [float.fromhex(word) for word in GOLDEN[seed].split()]
    assert (2, wanted) == draw(send, seed, 0, "uniform", "float", 8, 0.0, 1.0)
    assert (2, wanted) == expected(seed, 0, "uniform", "float", 8, 0.0, 1.0)


# ---------------------------------------------------------------------------------------------- element conversions


def test_every_half_widens_as_numpy_does(send: Send) -> None:
    """All 65536 half patterns widen to the float that NumPy gives."""
    got = [float.fromhex(answer) for answer in send(*(f"from_half {bits}" for bits in range(2**16)))]
    wanted = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    np.testing.assert_array_equal(wanted, np.array(got))


def tricky_floats() -> list[float]:
    """Float32 values at and beside the rounding borders of the narrow types."""
    values = [0.0, -0.0, 65504.0, 65519.99, 65520.0, 65536.0, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-26, 3.0 * 2**-25]
    values += [1 + k * 2.0**-12 for k in range(8)] + [k * 2.0**-26 for k in range(1, 40)]
    values += [1 + k * 2.0**-9 for k in range(8)] + [math.inf, 2.0**-126, 2.0**-149, 3.4e38, 2.0**128 - 2.0**119]
    words = np.random.default_rng(3).integers(0, 2**32, 2000, dtype=np.uint64).astype(np.uint32)
    values += [float(x) for x in words.view(np.float32) if np.isfinite(x)]
    floats = [float(np.float32(v)) for v in values]
    return floats + [-v for v in floats]


def test_half_rounds_to_nearest_even(send: Send) -> None:
    """Float to half is NumPy's, on borders, subnormals and overflow; a NaN stays a NaN."""
    values = tricky_floats()
    *got, nan = send(*(f"half {value.hex()}" for value in values), "half nan")
    with np.errstate(over="ignore"):
        wanted = np.array(values, dtype=np.float32).astype(np.float16).view(np.uint16)
    assert wanted.tolist() == [int(answer) for answer in got]
    assert int(nan) == 0x7E00


def test_bfloat_rounds_to_nearest_even(send: Send) -> None:
    """Float to bfloat16 is the nearest value, ties to even; a NaN stays a NaN."""
    values = tricky_floats()
    *got, nan = send(*(f"bfloat {value.hex()}" for value in values), "bfloat nan")
    patterns = np.array([int(answer) for answer in got], dtype=np.uint32) << 16
    wanted = [narrow("bfloat", np.float32(value)) for value in values]
    assert exactly(wanted) == exactly([float(x) for x in patterns.view(np.float32)])
    assert int(nan) == 0x7FC0


# ----------------------------------------------------------------------------------------------------------- fills


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (3.25, 1000.1), (2.0, 2.0)])
def test_uniform(send: Send, kind: str, bounds: tuple[float, float]) -> None:
    """Uniforms agree bit by bit for every size and type, and each call uses ceil(n / 4) blocks."""
    for n in SIZES:
        got = draw(send, 11, 5, "uniform", kind, n, *bounds)
        assert expected(11, 5, "uniform", kind, n, *bounds) == got
        assert 5 + math.ceil(n / 4) == got[0]


def test_uniform_in_half_can_reach_its_upper_bound(send: Send) -> None:
    """Up to 2.14 the cast rounds to nearest, so that a half drawn from [0, 1) may be 1: the backend's, kept."""
    _, values = draw(send, 0, 0, "uniform", "half", 20000, 0.0, 1.0)
    assert max(values) == 1.0


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.5, 1.0), (-3.0, 2.0), (2.0, 2.0)])
def test_uniform_of_2_15_stays_below_its_upper_bound(send: Send, kind: str, bounds: tuple[float, float]) -> None:
    """From 2.15 on the lower bound stands where the upper one would, and nothing else changes."""
    low, high = bounds
    offset, before = draw(send, 0, 0, "uniform", kind, 20000, low, high)
    found = draw(send, 0, 0, "uniform", kind, 20000, low, high, release=15)
    assert (offset, [low if value == high else value for value in before]) == found


@pytest.mark.parametrize("kind", FLOATING)
def test_normal(send: Send, kind: str) -> None:
    """Box-Muller pairs agree within 2 ulp; offsets exactly."""
    for seed in SEEDS:
        for n in SIZES:
            offset, wanted = expected(seed, 7, "normal", kind, n, 0.0, 1.0)
            got_offset, got = draw(send, seed, 7, "normal", kind, n, 0.0, 1.0)
            assert offset == got_offset == 7 + math.ceil(n / 4)
            assert_close(kind, wanted, got)


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize(
    ("name", "first", "second", "ulps", "scale"),
    [
        ("normal", 10.0, 0.25, 2, 10.0),
        ("normal", -3.0, 2.0, 2, 8.0),
        ("exponential", 1.0, None, 2, 0.0),
        ("exponential", 0.3, None, 2, 0.0),
        ("cauchy", 0.0, 1.0, 2, 0.0),
        ("cauchy", 2.5, 3.0, 2, 3.0),
        ("log_normal", 0.0, 0.25, 2, 0.0),
        ("log_normal", 1.0, 2.0, 12, 0.0),  # exp stretches an ulp of its argument
    ],
)
def test_transcendental_fills(
    send: Send, kind: str, name: str, first: float, second: float | None, ulps: int, scale: float
) -> None:
    """Distributions through log, exp and tan agree within the rounding of those functions; offsets exactly."""
    words = [first] if second is None else [first, second]
    for seed in SEEDS:
        for n in (1, 5, 66, 400):
            offset, wanted = expected(seed, 3, name, kind, n, *words)
            got_offset, got = draw(send, seed, 3, name, kind, n, *words)
            assert offset == got_offset == 3 + math.ceil(n / 4)
            assert_close(kind, wanted, got, ulps, scale)


def test_exponential_clamps_near_one(send: Send) -> None:
    """The largest uniforms count as 1 - eps, so the tail ends at 23 ln 2."""
    _, values = draw(send, 0, 11432544, "exponential", "float", 1, 1.0)
    assert float(unit(block(0, 11432544)[0])) == 1 - 2**-24
    assert abs(23 * math.log(2) - values[0]) < 2e-6


def test_exponential_can_be_minus_zero(send: Send) -> None:
    """A uniform below 2^-25 gives -0.0, as the 2.13 kernel does (pytorch issue 192577)."""
    for kind in FLOATING:
        _, values = draw(send, 0, 1875345, "exponential", kind, 1, 1.0)
        assert exactly([-0.0]) == exactly(values)


@pytest.mark.parametrize("release", [14, 15])
def test_exponential_is_never_zero_from_2_14_on(send: Send, release: int) -> None:
    """The uniform counts as at least 2^-24, and other draws stay what they were."""
    _, before = draw(send, 5, 0, "exponential", "float", 400, 1.0)
    _, values = draw(send, 0, 1875345, "exponential", "float", 1, 1.0, release=release)
    _, after = draw(send, 5, 0, "exponential", "float", 400, 1.0, release=release)
    assert [2.0**-24] == values
    assert before == after


def test_geometric_saturates_integers(send: Send) -> None:
    """A value beyond the element's range becomes its largest number, not an undefined one."""
    for kind, largest in (("char", 127), ("uchar", 255), ("short", 32767)):
        assert largest == max(draw(send, 0, 0, "geometric", kind, 400, 1e-4)[1])


# ----------------------------------------------------------------------------------------------------- random whole


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("base", "span"), [(0, 2), (0, 100), (-50, 100), (5, 1), (0, 2**24), (-(2**31), 2**32 - 1), (7, 2**32 + 10)]
)
def test_random_int(send: Send, kind: str, base: int, span: int) -> None:
    """base + word mod range in every type: four a block up to 4 bytes, two a block for 8 bytes."""
    for n in (1, 2, 3, 33, 64, 131):
        got = draw(send, 4, 6, "random_int", kind, n, base, span)
        assert exactly(expected(4, 6, "random_int", kind, n, base, span)[1]) == exactly(got[1])
        assert 6 + math.ceil(n / (2 if BYTES[kind] == 8 else 4)) == got[0]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("span", [0, 2**64 - 1])
def test_random_int_over_the_whole_width(send: Send, kind: str, span: int) -> None:
    """Range 0 (and 2^64 - 1, which the host sends as 0) takes the words as they are, signed, plus the base."""
    for base in (0, -(2**63)):
        wanted = expected(8, 0, "random_int", kind, 101, base, span)
        assert wanted == draw(send, 8, 0, "random_int", kind, 101, base, span)


def test_random_int_spans_of_64_bits(send: Send) -> None:
    """Eight-byte elements use both words, the first as the high half."""
    for span in (2**40 + 7, 2**63 - 1, 2**63 + 11):
        wanted = expected(8, 0, "random_int", "long", 101, -3, span)
        assert wanted == draw(send, 8, 0, "random_int", "long", 101, -3, span)
    _, values = draw(send, 8, 0, "random_int", "ulong", 1, 0, 0)
    high, low, _, _ = block(8, 0)
    assert [high << 32 | low] == values


def test_random_int_refuses_a_range_that_vanishes(send: Send) -> None:
    """A range that is a multiple of 2^32 would divide by zero on Metal: ours raises and leaves the offset."""
    answer, fill = send(f"random_int float 4 0 {2**33}", "uniform float 1 0 1")
    assert answer == (
        "error RangeRefused anymps: random_ over 8589934592 values into Float: Metal takes the range modulo 2^32, here"
        " 0, and divides by it. Use a range below 2^32 or an int64 tensor."
    )
    assert numbers(fill)[0] == 1
    wanted = expected(0, 0, "random_int", "long", 4, 0, 2**33)
    assert wanted == draw(send, 0, 0, "random_int", "long", 4, 0, 2**33)


def test_default_ranges(send: Send) -> None:
    """random_() without bounds: the whole numbers a float holds, the non-negative half of an integer."""
    wanted = {"float": 2**24, "half": 2**11, "bfloat": 2**8, "uchar": 256, "char": 128, "short": 2**15, "int": 2**31}
    wanted |= {"long": 2**63 - 1, "bool": 2}
    assert list(map(str, wanted.values())) == send(*(f"default_range {kind}" for kind in wanted))
    names = {"ushort": "UInt16", "uint": "UInt32", "ulong": "UInt64"}
    text = "error DispatchMissing \"random_kernel_mps_range_calc\" not implemented for '{}'"
    assert [text.format(name) for name in names.values()] == send(*(f"default_range {kind}" for kind in names))
