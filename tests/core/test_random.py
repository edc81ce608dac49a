"""Random numbers on the device: the Metal stream through torch's own calls, layouts, threads and callers.

The expected numbers come from reference_philox.py, a second implementation of the stream of torch 2.13 and later; with
them the 44 bytes of the generator's state are compared after every call.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from random_draws import (
    BERNOULLI,
    DTYPES,
    FLOATING,
    GEOMETRIC,
    OFFSET,
    SEED,
    SIZES,
    VERSION,
    assert_close,
    elements,
    empty,
    pair,
    since_2_12,
    state_of,
)
from reference_philox import Reference, unit
from reference_philox import block as philox_block

pytestmark = pytest.mark.usefixtures("random_device")


# ---------------------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.5, 2.5), (3.25, 1000.1), (2.0, 2.0)])
def test_uniform(kind: str, bounds: tuple[float, float]) -> None:
    """uniform_ gives the stream's numbers bit by bit and uses a block for four elements."""
    for n in SIZES:
        generator, reference = pair()
        drawn = empty(kind, n).uniform_(*bounds, generator=generator)
        assert reference.uniform(kind, n, *bounds) == elements(drawn)
        assert reference.state() == state_of(generator)
        assert OFFSET + math.ceil(n / 4) == generator.get_offset()


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize(
    ("name", "words", "scale"),
    [
        ("normal", (0.0, 1.0), 0.0),
        ("normal", (10.0, 0.25), 10.0),
        ("normal", (-3.0, 2.0), 8.0),
        ("exponential", (1.0,), 0.0),
        ("exponential", (0.3,), 0.0),
        ("cauchy", (0.0, 1.0), 0.0),
        ("cauchy", (2.5, 3.0), 3.0),
        ("log_normal", (0.0, 0.25), 0.0),
        ("log_normal", (1.0, 2.0), 0.0),
    ],
)
def test_transcendental_distributions(kind: str, name: str, words: tuple[float, ...], scale: float) -> None:
    """The distributions through log, exp, cos and tan agree but for rounding; state exactly."""
    for n in SIZES:
        generator, reference = pair()
        drawn = getattr(empty(kind, n), f"{name}_")(*words, generator=generator)
        assert_close(kind, getattr(reference, name)(kind, n, *words), drawn, scale)
        assert reference.state() == state_of(generator)
        assert OFFSET + math.ceil(n / 4) == generator.get_offset()


@pytest.mark.parametrize(
    ("name", "kind"), [*(("geometric", kind) for kind in GEOMETRIC), *(("bernoulli", kind) for kind in BERNOULLI)]
)
def test_geometric_and_bernoulli(name: str, kind: str) -> None:
    """geometric_ gives whole numbers, and bernoulli_(p) zeros and ones, in every type that has a kernel."""
    generator, reference = pair()
    drawn = getattr(empty(kind, 130), f"{name}_")(0.3, generator=generator)
    assert getattr(reference, name)(kind, 130, 0.3) == elements(drawn)
    assert reference.state() == state_of(generator)


@pytest.mark.parametrize("kind", BERNOULLI)
def test_bernoulli_with_a_tensor(kind: str) -> None:
    """bernoulli_(tensor) skips a block an element, four times what it uses."""
    generator, reference = pair()
    p = torch.linspace(0, 1, 35, device="mps").reshape(5, 7)
    drawn = empty(kind, 5, 7).bernoulli_(p, generator=generator)
    assert reference.bernoulli_tensor(kind, 35, *elements(p)) == elements(drawn)
    assert reference.state() == state_of(generator)
    assert OFFSET + 35 == generator.get_offset()


def test_bernoulli_with_a_tensor_of_no_dimension() -> None:
    """A 0-dim probability counts as a number: a block for four elements."""
    generator, reference = pair()
    drawn = empty("float", 9).bernoulli_(torch.tensor(0.25, device="mps"), generator=generator)
    assert reference.bernoulli("float", 9, 0.25) == elements(drawn)
    assert reference.state() == state_of(generator)


def test_bernoulli_of_probabilities() -> None:
    """torch.bernoulli(p) and its out= draw as bernoulli_(p) does."""
    p = torch.linspace(0, 1, 10, device="mps")
    generator, reference = pair()
    out = torch.empty(0, device="mps")
    drawn = [torch.bernoulli(p, generator=generator), torch.bernoulli(p, generator=generator, out=out)]
    for tensor in drawn:
        assert reference.bernoulli_tensor("float", 10, *elements(p)) == elements(tensor)
    assert drawn[1] is out
    assert reference.state() == state_of(generator)


def test_bernoulli_in_a_complex_tensor() -> None:
    """A complex target receives 1 + 0j and 0, from the draws of a real one."""
    generator, reference = pair()
    drawn = torch.empty(11, dtype=torch.complex64, device="mps").bernoulli_(0.5, generator=generator)
    assert reference.bernoulli("float", 11, 0.5) == [value.real for value in drawn.tolist()]
    assert not drawn.imag.any()
    assert reference.state() == state_of(generator)


@pytest.mark.parametrize("kind", DTYPES)
def test_random_between_bounds(kind: str) -> None:
    """random_(from, to) takes the words modulo the range; 8-byte types take two words an element."""
    generator, reference = pair()
    low, high = (0, 2) if kind == "bool" else (3, 100)
    drawn = empty(kind, 21).random_(low, high, generator=generator)
    assert reference.random_int(kind, 21, low, high - low) == elements(drawn)
    assert reference.state() == state_of(generator)
    assert OFFSET + math.ceil(21 / (2 if kind in ("long", "ulong") else 4)) == generator.get_offset()


@pytest.mark.parametrize(
    ("kind", "span"),
    {
        "float": 2**24,
        "half": 2**11,
        "bfloat": 2**8,
        "bool": 2,
        "uchar": 2**8,
        "char": 2**7,
        "short": 2**15,
        "int": 2**31,
        "long": 2**63 - 1,
    }.items(),
)
def test_random_without_bounds(kind: str, span: int) -> None:
    """random_() covers the whole numbers of a floating type, the non-negative ones of an integer type."""
    generator, reference = pair()
    drawn = empty(kind, 21).random_(generator=generator)
    assert reference.random_int(kind, 21, 0, span) == elements(drawn)
    assert reference.state() == state_of(generator)


def test_random_with_one_bound() -> None:
    """random_(to) starts at 0; random_(from, None) ends at the type's largest number."""
    generator, reference = pair()
    upto = empty("int", 9).random_(17, generator=generator)
    assert reference.random_int("int", 9, 0, 17) == elements(upto)
    onwards = empty("short", 9).random_(-5, None, generator=generator)
    assert reference.random_int("short", 9, -5, 2**15 + 5) == elements(onwards)
    assert reference.state() == state_of(generator)


def test_random_over_all_64_bits() -> None:
    """random_(from, None) covers every number of int64 from torch 2.13 on; before, mps refuses that range."""
    generator, reference = pair()
    whole = empty("long", 9)
    if VERSION < (2, 13):
        with pytest.raises(RuntimeError) as raised:
            whole.random_(-(2**63), None, generator=generator)
        assert str(raised.value) == "random_mps_ currently does not handle the lowest() -> max() range"
    else:
        whole.random_(-(2**63), None, generator=generator)
        assert reference.random_int("long", 9, -(2**63), 0) == elements(whole)
    assert reference.state() == state_of(generator)


@since_2_12
@pytest.mark.parametrize("kind", FLOATING)
def test_standard_gamma(kind: str) -> None:
    """_standard_gamma takes its own 32 blocks an element."""
    generator, reference = pair()
    alpha = torch.tensor([0.5, 1.0, 3.5, 20.0, 0.0], dtype=DTYPES[kind], device="mps")
    drawn = torch._standard_gamma(alpha, generator=generator)
    assert_close(kind, reference.gamma(kind, 5, *elements(alpha)), drawn)
    assert reference.state() == state_of(generator)
    assert OFFSET + 32 * 5 == generator.get_offset()


@pytest.mark.skipif(VERSION < (2, 13), reason="_sample_dirichlet has an mps kernel from torch 2.13 on")
def test_dirichlet() -> None:
    """_sample_dirichlet gives rows that sum to one, from gamma draws; a transposed input is read row by row."""
    generator, reference = pair()
    alpha = torch.tensor([[0.5, 1.0], [3.0, 2.0], [4.0, 8.0]], device="mps").t()
    drawn = torch._sample_dirichlet(alpha, generator=generator)
    assert_close("float", reference.dirichlet("float", 2, 3, *elements(alpha)), drawn)
    assert drawn.is_contiguous()
    assert reference.state() == state_of(generator)


@pytest.mark.skipif(VERSION < (2, 14), reason="poisson and binomial have mps kernels from torch 2.14 on")
def test_poisson_and_binomial() -> None:
    """poisson and binomial take their own 32 blocks an element."""
    generator, reference = pair()
    rate = torch.tensor([0.5, 9.0, 40.0], device="mps")
    assert reference.poisson("float", 3, *elements(rate)) == elements(torch.poisson(rate, generator=generator))
    count, p = torch.tensor([3.0, 40.0, 100.0], device="mps"), torch.tensor([0.5, 0.9, 0.1], device="mps")
    drawn = torch.binomial(count, p, generator=generator)
    assert reference.binomial("float", 3, *elements(count), *elements(p)) == elements(drawn)
    assert reference.state() == state_of(generator)


# ---------------------------------------------------------------------------------------------------- factories


def test_factories() -> None:
    """torch.rand, randn, randint and normal draw in the order of the calls."""
    generator, reference = pair()
    place: dict[str, Any] = {"device": "mps", "generator": generator}
    assert reference.uniform("float", 6, 0.0, 1.0) == elements(torch.rand(2, 3, **place))
    assert reference.uniform("half", 5, 0.0, 1.0) == elements(torch.rand(5, dtype=torch.float16, **place))
    assert_close("float", reference.normal("float", 7, 0.0, 1.0), torch.randn(7, **place), 1.0)
    assert reference.random_int("long", 5, -3, 13) == elements(torch.randint(-3, 10, (5,), **place))
    assert reference.random_int("int", 5, 0, 10) == elements(torch.randint(10, (5,), dtype=torch.int32, **place))
    assert_close("float", reference.normal("float", 4, 5.0, 2.0), torch.normal(5.0, 2.0, (4,), **place), 5.0)
    assert reference.state() == state_of(generator)


def test_factories_by_likeness() -> None:
    """rand_like, randn_like and randint_like draw from the default generator."""
    torch.mps.manual_seed(SEED)
    reference = Reference(SEED)
    like = empty("bfloat", 3, 3)
    assert reference.uniform("bfloat", 9, 0.0, 1.0) == elements(torch.rand_like(like))
    assert_close("bfloat", reference.normal("bfloat", 9, 0.0, 1.0), torch.randn_like(like), 1.0)
    assert reference.random_int("bfloat", 9, 0, 50) == elements(torch.randint_like(like, 50))
    assert reference.state() == bytes(torch.mps.get_rng_state().tolist())


def test_normal_with_tensors() -> None:
    """torch.normal draws standard normals, multiplies and adds; out= receives them."""
    mean = torch.tensor([[1.0, 2.0, 3.0]], device="mps")
    std = torch.tensor([[0.5], [2.0]], device="mps")
    generator, reference = pair()
    both = torch.normal(mean, std, generator=generator)
    z = reference.normals(6)
    expected = [float(std[i, 0]) * float(z[3 * i + j]) + float(mean[0, j]) for i in range(2) for j in range(3)]
    assert both.shape == (2, 3)
    assert_close("float", expected, both, 3.0)
    z = reference.normals(3)
    one = torch.normal(mean, 2.0, generator=generator)
    assert_close("float", [2 * float(value) + 1 + i for i, value in enumerate(z)], one, 3.0)
    z = reference.normals(2)
    out = torch.empty(0, device="mps")
    assert torch.normal(5.0, std, generator=generator, out=out) is out
    assert_close("float", [0.5 * float(z[0]) + 5, 2 * float(z[1]) + 5], out, 5.0)
    assert reference.state() == state_of(generator)


def test_complex_normal_and_uniform() -> None:
    """Complex tensors are filled as pairs; a normal has half the variance in each part."""
    generator, reference = pair()
    drawn = torch.randn(5, dtype=torch.complex64, device="mps", generator=generator)
    wanted = reference.normal("float", 10, 0.0, 1 / math.sqrt(2))
    assert_close("float", wanted, torch.view_as_real(drawn), 1.0)
    drawn = torch.rand(5, dtype=torch.complex64, device="mps", generator=generator)
    assert reference.uniform("float", 10, 0.0, 1.0) == elements(torch.view_as_real(drawn))
    assert reference.state() == state_of(generator)


# ---------------------------------------------------------------------------------------------------- compositions


@pytest.mark.parametrize("kind", ["long", "int", "float", "half", "uchar"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 100, 383, 384, 385, 1000, 2**15 - 1, 2**15, 40001])
def test_randperm(kind: str, n: int) -> None:
    """randperm takes the path of its size and type: Fisher-Yates, float keys, 24-bit keys."""
    if n > {"half": 2049, "uchar": 256}.get(kind, n):
        pytest.skip("the type does not hold these numbers")
    generator, reference = pair()
    drawn = torch.randperm(n, dtype=DTYPES[kind], device="mps", generator=generator)
    assert reference.randperm(kind, n) == elements(drawn)
    assert reference.state() == state_of(generator)


def test_randperm_into_a_tensor_with_gaps() -> None:
    """A result that is not contiguous takes the path of float keys, however small it is."""
    generator, reference = pair()
    out = empty("long", 20)[::2]
    torch.randperm(10, generator=generator, out=out)
    assert reference.randperm("long", 10, contiguous=0) == elements(out)
    assert reference.state() == state_of(generator)


def test_randperm_of_nothing_draws_nothing() -> None:
    """randperm(0) leaves the generator alone."""
    generator, reference = pair()
    assert torch.randperm(0, device="mps", generator=generator).shape == (0,)
    assert reference.state() == state_of(generator)


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize(
    ("samples", "replacement"), [(1, False), (3, False), (4, False), (1, True), (2, True), (6, True), (50, True)]
)
def test_multinomial(kind: str, samples: int, replacement: bool) -> None:
    """multinomial takes the largest weight / Exp(1), or searches the running sum; zero weights are never chosen."""
    weights = torch.tensor([[0.5, 0.25, 0.0, 2.0, 1.0]] * 4, dtype=DTYPES[kind], device="mps")
    generator, reference = pair()
    drawn = torch.multinomial(weights, samples, replacement, generator=generator)
    _, *wanted = reference.multinomial(kind, 4, 5, samples, replacement, *elements(weights))
    assert drawn.shape == (4, samples)
    assert wanted == elements(drawn)
    assert 2 not in wanted
    assert reference.state() == state_of(generator)


def test_multinomial_of_one_distribution() -> None:
    """One dimension in, one out, also through out=."""
    weights = torch.tensor([1.0, 2.0, 3.0], device="mps")
    generator, reference = pair()
    out = empty("long", 0)
    torch.multinomial(weights, 2, generator=generator, out=out)
    _, *wanted = reference.multinomial("float", 1, 3, 2, 0, 1.0, 2.0, 3.0)
    assert out.shape == (2,)
    assert wanted == elements(out)


def test_multinomial_of_transposed_weights() -> None:
    """The exponentials lie as the weights do: those of transposed weights are drawn column by column."""
    weights = torch.tensor([[0.5, 1.0, 2.0, 0.0], [3.0, 0.5, 1.0, 1.0]], device="mps").t()
    generator, reference = pair()
    drawn = torch.multinomial(weights.t().contiguous().t(), 2, generator=generator)
    q = [abs(float(value)) for value in reference.exponential("float", 8, 1.0)]
    ratio = [[float(weights[row, column]) / q[4 * column + row] for column in range(2)] for row in range(4)]
    assert [[0, 1] if a >= b else [1, 0] for a, b in ratio] == drawn.tolist()
    assert reference.state() == state_of(generator)


@pytest.mark.skipif(
    VERSION != (2, 13), reason="from torch 2.14 on no exponential is zero; before, the stream is Apple's"
)
def test_multinomial_hazard_of_a_zero_draw(virtual_device: torch.device) -> None:
    """Where an exponential is exactly zero a Mac may choose a weight of zero: chosen right here, and said."""
    assert float(unit(philox_block(0, 1875345)[0])) < 2.0**-25
    generator, _ = pair(0, 1875345)
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning) as warned:
            drawn = torch.multinomial(torch.tensor([0.0, 1.0, 1.0], device="mps"), 1, generator=generator)
    finally:
        torch.set_warn_always(False)
    assert drawn.item() in (1, 2)
    assert str(warned[0].message).startswith(
        "anymps: multinomial drew an exponential of exactly zero. A Mac divides by it and may then choose a category "
        "of probability zero (pytorch issue 192577); the virtual device does not"
    )
