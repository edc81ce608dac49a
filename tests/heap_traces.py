"""Traces for the compiled heap model (tests/native/heap_trace.cpp): their lines, and what an answer says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

MIB = 1 << 20
GIB = 1 << 30
UNLIMITED = (1 << 64) - 1
ADVICE = (
    " Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations"
    " (may cause system failure)."
)
G1, G2, G3 = 11, 13, 15
EVERY = pytest.mark.parametrize("minor", [7, 8, 11, 12, 13, 14, 15])
PLACED = pytest.mark.parametrize("minor", [14, 15])

Run = Callable[..., list[str]]


def generation(minor: int) -> str:
    """The generation's name in the harness."""
    return "G1" if minor <= 11 else "G2" if minor <= 13 else "G3"


def config(
    minor: int,
    recommended: int = 64 * GIB,
    max_buffer: int = 48 * GIB,
    high: float | str = "-",
    low: float | str = "-",
    extra: str = "",
) -> str:
    """The first line of a trace: ample memory unless said otherwise."""
    return f"config {generation(minor)} {minor} {recommended} {max_buffer} {high} {low} {extra}"


def fields(answer: str) -> dict[str, int]:
    """The numbers of an answer line."""
    return {key: int(value) for key, value in (word.split("=") for word in answer.split()[1:])}


def counters(answer: str) -> tuple[int, int]:
    """(current, total) of a `stats` answer."""
    values = fields(answer)
    return values["current"], values["total"]
