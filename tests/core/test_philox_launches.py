"""How launches of the random stream follow each other, what is refused, and how the numbers are distributed."""

from __future__ import annotations

import pytest

from philox_traces import (
    BERNOULLI,
    FLOATING,
    GEOMETRIC,
    TYPES,
    Send,
    numbers,
)
from reference_philox import Reference


def test_split_tensor_starts_each_piece_at_a_fresh_block(send: Send) -> None:
    """A fill beyond the limit equals separate fills of its pieces, with a gap in the stream after an odd piece."""
    reference = Reference(3)
    pieces = [reference.uniform("float", n, 0.0, 1.0) for n in (9, 9, 9, 10)]
    answer = send("seed 3", "limit 40", "uniform float 37 0 1")[-1]
    assert (reference.offset, [value for piece in pieces for value in piece]) == numbers(answer)
    assert reference.offset == 3 * 3 + 3


def test_empty_fills_use_nothing(send: Send) -> None:
    """No elements: no offset, no error, even for a type without a kernel (normal_ checks its type first)."""
    lines = ["uniform int 0 0 1", "bernoulli ushort 0 0.5", "random_int int 0 0 0", "randperm long 0 1", "gamma int 0"]
    assert ["3"] * len(lines) == send("offset 3", *lines)[1:]
    assert send("normal int 0 0 1")[0] == "error TypeRefused normal_kernel_mps not implemented for 'Int'"


@pytest.mark.parametrize(
    ("call", "kernel", "kinds"),
    [
        ("uniform {} 4 0 1", "uniform_dist", FLOATING),
        ("exponential {} 4 1", "exponential", FLOATING),
        ("cauchy {} 4 0 1", "cauchy", FLOATING),
        ("log_normal {} 4 0 1", "log_normal", FLOATING),
        ("geometric {} 4 0.5", "geometric", GEOMETRIC),
        ("bernoulli {} 4 0.5", "bernoulli_scalar", BERNOULLI),
        ("bernoulli_tensor {} 1 0.5", "bernoulli_tensor", BERNOULLI),
        ("random_int {} 4 0 5", "random_int", TYPES),
        ("gamma {} 1 1", "standard_gamma", FLOATING),
        ("poisson {} 1 1", "poisson", FLOATING),
        ("binomial {} 1 1 1", "standard_binomial", FLOATING),
        ("dirichlet {} 1 1 1", "standard_dirichlet", FLOATING),
    ],
)
def test_types_without_a_kernel(send: Send, call: str, kernel: str, kinds: list[str]) -> None:
    """Types for which Metal has no kernel raise its look-up text and leave the offset alone."""
    for kind in TYPES:
        answer, after = send(call.format(kind), "uniform float 1 0 1")
        if kind in kinds:
            assert not answer.startswith("error"), answer
        else:
            assert f"error KernelMissing Failed to create function state object for: {kernel}_{kind}" == answer
            assert numbers(after)[0] == 1
