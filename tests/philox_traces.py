"""Calls of the compiled Philox stream (tests/native/philox_trace.cpp), and the reference's answers to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from reference_philox import DEFAULT_SEED, INT_BITS, Number, Reference

FLOATING = ["float", "half", "bfloat"]
TYPES = [*FLOATING, *INT_BITS, "bool"]
GEOMETRIC = [*FLOATING, "int", "long", "short", "char", "uchar"]
BERNOULLI = [*GEOMETRIC, "bool"]
SEEDS = [0, 1, DEFAULT_SEED, 2**32 - 1, 2**63 + 12345, 2**64 - 1]

# First eight uniforms after manual_seed(key).
GOLDEN = {
    0: "0x1.c0a2c60000000p-1 0x1.59652e0000000p-1 0x1.3c81440000000p-1 0x1.db59880000000p-1"
    " 0x1.f83cf40000000p-1 0x1.9f16b40000000p-2 0x1.aceec80000000p-2 0x1.d726020000000p-2",
    1: "0x1.b908ec0000000p-1 0x1.ac317a0000000p-1 0x1.f496520000000p-3 0x1.fec22c0000000p-1"
    " 0x1.71dff20000000p-3 0x1.cc90ec0000000p-2 0x1.46f0960000000p-2 0x1.8b40800000000p-4",
    DEFAULT_SEED: "0x1.0234aa0000000p-2 0x1.a702700000000p-4 0x1.0ae1980000000p-1 0x1.4fa72a0000000p-3"
    " 0x1.143ade0000000p-2 0x1.5f20d60000000p-1 0x1.08cc740000000p-1 0x1.bb0ed40000000p-2",
}

Send = Callable[..., list[str]]


def command(name: str, *words: object) -> str:
    """One trace line; floats go as hex, so that none is changed on the way."""
    return " ".join([name, *(float(word).hex() if isinstance(word, float) else str(word) for word in words)])


def numbers(answer: str) -> tuple[int, list[Number]]:
    """Offset and elements of one answer."""
    assert not answer.startswith("error"), answer
    offset, *values = answer.split()
    return int(offset), [float.fromhex(v) if "." in v or "p" in v or "n" in v else int(v) for v in values]


def draw(send: Send, seed: int, offset: int, name: str, *words: object, release: int = 13) -> tuple[int, list[Number]]:
    """The harness's offset and elements for one call, by the kernels of torch 2.`release`."""
    return numbers(send(f"release {release}", f"seed {seed}", f"offset {offset}", command(name, *words))[-1])


def expected(seed: int, offset: int, name: str, *words: Any) -> tuple[int, list[Number]]:
    """The reference's offset and elements for the same call."""
    reference = Reference(seed, offset)
    values = getattr(reference, name)(*words)
    return reference.offset, values


def exactly(values: list[Number]) -> list[tuple[Number, bool]]:
    """Elements in a form in which -0.0 and 0.0 differ."""
    return [(value, math.copysign(1, value) < 0) for value in values]
