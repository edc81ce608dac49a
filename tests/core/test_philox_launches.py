"""How launches of the random stream follow each other, what is refused, and how the numbers are distributed."""

from __future__ import annotations

import math
import statistics

import pytest

from philox_traces import (
    BERNOULLI,
    FLOATING,
    GEOMETRIC,
    TYPES,
    Send,
    draw,
    numbers,
)
from reference_philox import Reference


def test_launch_sizes(send: Send) -> None:
    """One launch up to 32-bit indexing of the last byte, then halves, the lower (and smaller) one first."""
    limit = 2**31 - 1
    cases = {
        (0, 4): [],
        (1, 8): [1],
        (2**29, 4): [2**29],  # its last element starts at byte 2^31 - 4
        (2**29 + 1, 4): [2**28, 2**28 + 1],
        (limit, 1): [limit],
        (limit + 1, 1): [2**30, 2**30],
        (2**31 + 3, 2): [2**29, 2**29 + 1, 2**29 + 1, 2**29 + 1],
    }
    answers = send(*(f"launch_sizes {n} {size}" for n, size in cases))
    assert list(cases.values()) == [[int(word) for word in answer.split()] for answer in answers]


def test_split_tensor_starts_each_piece_at_a_fresh_block(send: Send) -> None:
    """A fill beyond the limit equals separate fills of its pieces, with a gap in the stream after an odd piece."""
    reference = Reference(3)
    pieces = [reference.uniform("float", n, 0.0, 1.0) for n in (9, 9, 9, 10)]
    answer = send("seed 3", "limit 40", "uniform float 37 0 1")[-1]
    assert (reference.offset, [value for piece in pieces for value in piece]) == numbers(answer)
    assert reference.offset == 3 * 3 + 3


CALLS = [
    "uniform float 331 -1 1",
    "uniform half 331 0 1",
    "normal float 331 1 2",
    "normal bfloat 331 0 1",
    "exponential float 331 2",
    "cauchy float 331 0 1",
    "log_normal float 331 0 1",
    "geometric int 331 0.25",
    "bernoulli bool 331 0.5",
    "bernoulli_tensor uchar 331 " + " ".join(["0.25", "0.75", "0.5"] * 111),
    "random_int int 331 -5 1000",
    "random_int long 331 -5 1000",
    "gamma float 40 " + " ".join(["0.3", "1", "2.5", "40"] * 10),
    "poisson float 40 " + " ".join(["0.3", "1", "25", "400"] * 10),
    "binomial float 12 " + " ".join(["100", "5", "40"] * 4) + " " + " ".join(["0.5", "0.2", "0.9"] * 4),
    "dirichlet float 6 5 " + " ".join(["0.5", "1.5", "3"] * 10),
    "randperm int 300 1",
    "randperm long 500 1",
    "randperm int 40000 1",
    "multinomial float 7 5 3 0 " + " ".join(["0.1", "2", "0.5", "1", "0"] * 7),
    "multinomial float 7 5 9 1 " + " ".join(["0.1", "2", "0.5", "1", "0"] * 7),
    "dropout float 331 0.25 " + " ".join(["1.5", "-2"] * 165) + " 1",
]


@pytest.mark.parametrize("line", CALLS, ids=lambda line: "-".join(line.split()[:3]))
def test_numbers_do_not_depend_on_threads(send: Send, line: str) -> None:
    """Any partition of the work, run by three threads in any order, gives the serial elements and offset."""
    serial = send("seed 21", "offset 1000", line)[-1]
    assert not serial.startswith("error"), serial
    for piece in (1, 2, 3, 7, 16, 17, 100):
        assert serial == send("seed 21", "offset 1000", f"split {piece}", line)[-1]


def test_consecutive_calls_continue_the_stream(send: Send) -> None:
    """Each call starts where the last one stopped, whatever the distributions are."""
    reference = Reference(17)
    wanted = [
        reference.uniform("float", 5, 0.0, 1.0),
        reference.randperm("long", 10),
        reference.random_int("long", 3, 0, 10),
        reference.bernoulli_tensor("float", 5, *[0.5] * 5),
        reference.uniform("float", 2, 0.0, 1.0),
    ]
    answers = send(
        "seed 17",
        "uniform float 5 0 1",
        "randperm long 10 1",
        "random_int long 3 0 10",
        "bernoulli_tensor float 5 0.5 0.5 0.5 0.5 0.5",
        "uniform float 2 0 1",
    )[1:]
    assert wanted == [numbers(answer)[1] for answer in answers]
    assert [numbers(answer)[0] for answer in answers] == [2, 2 + 3, 5 + 2, 7 + 5, 12 + 1]
    assert reference.offset == 13


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
        ("dropout {} 1 0.5 1", "dropout_fwd", FLOATING),
    ],
)
def test_types_without_a_kernel(send: Send, call: str, kernel: str, kinds: list[str]) -> None:
    """Types for which Metal has no kernel raise its look-up text and leave the offset alone."""
    for kind in TYPES:
        answer, state = send(call.format(kind), "state")
        if kind in kinds:
            assert not answer.startswith("error"), answer
        else:
            assert f"error KernelMissing Failed to create function state object for: {kernel}_{kind}" == answer
            assert Reference().state().hex() == state


def test_normal_names_the_refused_type(send: Send) -> None:
    """normal_ on a type that is not floating is a TypeError with torch's name of the type."""
    names = {"uchar": "Byte", "char": "Char", "short": "Short", "int": "Int", "long": "Long", "bool": "Bool"}
    names |= {"ushort": "UInt16", "uint": "UInt32", "ulong": "UInt64"}
    wanted = [f"error TypeRefused normal_kernel_mps not implemented for '{name}'" for name in names.values()]
    assert wanted == send(*(f"normal {kind} 4 0 1" for kind in names))


def test_texts(send: Send) -> None:
    """The texts of checks that need tensors are the backend's, word for word."""
    wanted = {
        "kind": "random_mps handles only integral, floating-point and boolean types",
        "probability 1.5": "bernoulli_mps_ expects p to be in [0, 1], but got p=1.5",
        "probability -0.1": "bernoulli_mps_ expects p to be in [0, 1], but got p=-0.1",
        "shape": "bernoulli_mps_: probability and self tensor should be of the same shape",
        "count -3": "n must be non-negative, got-3",
        "type cpu": "Expected a 'mps' device type for generator but found 'cpu'",
        "device cpu": "Expected a 'mps:0' generator device but found 'cpu'",
    }
    assert list(wanted.values()) == send(*(f"text {name}" for name in wanted))


@pytest.mark.parametrize(
    ("line", "mean", "variance"),
    [
        ("uniform float 40000 0 1", 0.5, 1 / 12),
        ("uniform float 40000 -3 5", 1.0, 64 / 12),
        ("normal float 40000 0 1", 0.0, 1.0),
        ("normal half 40000 2 3", 2.0, 9.0),
        ("exponential float 40000 2", 0.5, 0.25),
        ("log_normal float 40000 0 0.5", math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
        ("geometric int 40000 0.25", 4.0, 12.0),
        ("bernoulli uchar 40000 0.3", 0.3, 0.21),
        ("random_int int 40000 0 100", 49.5, 9999 / 12),
        ("random_int long 40000 -10 21", 0.0, 440 / 12),
        ("gamma float 20000 " + "2.5 " * 20000, 2.5, 2.5),
        ("gamma float 20000 " + "0.5 " * 20000, 0.5, 0.5),
        ("binomial float 20000 " + "50 " * 20000 + "0.7 " * 20000, 35.0, 10.5),
        ("binomial float 20000 " + "20 " * 20000 + "0.1 " * 20000, 2.0, 1.8),
    ],
    ids=lambda value: "-".join(value.split()[:2]) if isinstance(value, str) else "",
)
def test_moments(send: Send, line: str, mean: float, variance: float) -> None:
    """Mean and variance of many draws lie near those of the distribution."""
    _, values = numbers(send("seed 77", line)[-1])
    assert abs(statistics.fmean(values) - mean) < 6 * math.sqrt(variance / len(values))
    assert 0.9 < statistics.pvariance(values) / variance < 1.1


def test_cauchy_quartiles(send: Send) -> None:
    """Half of the Cauchy draws lie within sigma of the median."""
    _, values = draw(send, 77, 0, "cauchy", "float", 40000, 3.0, 2.0)
    low, middle, high = statistics.quantiles(values, n=4)
    assert max(abs(low - 1.0), abs(middle - 3.0), abs(high - 5.0)) < 0.12


def test_randperm_is_even_over_all_permutations(send: Send) -> None:
    """The six orders of three elements come about equally often."""
    answers = send("seed 4", *(["randperm int 3 1"] * 6000))[1:]
    counts: dict[str, int] = {}
    for answer in answers:
        order = answer.split(maxsplit=1)[1]
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts.values()) < 6 * math.sqrt(1000)
