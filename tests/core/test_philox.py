"""The Metal Philox stream of torch 2.13 and later: numbers, offsets and state against a second implementation.

Sources of the rules: c10/metal/random.h of the torch 2.13 wheel; pytorch's Distributions.metal and Distributions.mm.
The C++ sources are compiled alone, without torch, and driven through tests/native/philox_trace.cpp.
"""

from __future__ import annotations

import math
import random

import pytest

from philox_traces import (
    FLOATING,
    SEEDS,
    Send,
    draw,
    exactly,
    numbers,
)
from reference_philox import block, philox, unit

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
    lines = ("seed {}", "offset {}", "random_int ulong 1 0 0", "offset {}", "random_int uint 4 0 0")
    asked = [line.format(seed if line == "seed {}" else index) for seed, index in pairs for line in lines]
    answers = send(*asked)
    for pair, of_8_bytes, of_4_bytes in zip(pairs, answers[2::5], answers[4::5], strict=True):
        high, low, *_ = block(*pair)
        assert numbers(of_8_bytes)[1] == [high << 32 | low]
        assert numbers(of_4_bytes)[1] == list(block(*pair))


# ----------------------------------------------------------------------------------------------------------- fills


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
