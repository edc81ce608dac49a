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
