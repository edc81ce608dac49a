"""Random numbers on the device: the Metal stream through torch's own calls, generators and their state, errors.

The expected numbers come from reference_philox.py, a second implementation of the stream of torch 2.13 and later; with
them the 44 bytes of the generator's state are compared after every call.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

from reference_philox import DEFAULT_SEED, Number, Reference, unit
from reference_philox import block as philox_block

Draw = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
since_2_12 = pytest.mark.skipif(VERSION < (2, 12), reason="_standard_gamma has an mps kernel from torch 2.12 on")
DTYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "uchar": torch.uint8,
    "char": torch.int8,
    "short": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "ushort": torch.uint16,
    "uint": torch.uint32,
    "ulong": torch.uint64,
    "bool": torch.bool,
}
FLOATING = ["float", "half", "bfloat"]
GEOMETRIC = [*FLOATING, "uchar", "char", "short", "int", "long"]
BERNOULLI = [*GEOMETRIC, "bool"]
STEP = {"float": 2e-6, "half": 2e-3, "bfloat": 2e-2}  # relative room for functions that libraries round differently
SIZES = [1, 4, 5, 130]
SEED, OFFSET = 2**40 + 11, 7


@pytest.fixture(autouse=True)
def device(mps_device: torch.device) -> Iterator[torch.device]:
    """The device, with its default generator left as it was found."""
    import anymps

    if VERSION < (2, 13) and not anymps.is_virtual():
        pytest.skip("up to torch 2.12 the numbers of a Mac are Apple's, whose stream is not public")
    state = torch.mps.get_rng_state()
    yield mps_device
    torch.mps.set_rng_state(state)


def pair(seed: int = SEED, offset: int = OFFSET) -> tuple[torch.Generator, Reference]:
    """A generator of the device and the reference, at the same place of the same stream."""
    generator = torch.Generator("mps").manual_seed(seed)
    generator.set_offset(offset)
    return generator, Reference(seed, offset)


def state_of(generator: torch.Generator) -> bytes:
    """The 44 bytes of its state."""
    return bytes(generator.get_state().tolist())


def empty(kind: str, *sizes: int) -> torch.Tensor:
    """A tensor on the device, of a type in Metal's words."""
    return torch.empty(*sizes, dtype=DTYPES[kind], device="mps")


def elements(tensor: torch.Tensor) -> list[Number]:
    """The elements, row by row."""
    assert tensor.device.type == "mps"
    values: list[Number] = tensor.cpu().flatten().tolist()
    return values


def reference_numbers(reference: Reference) -> list[Number]:
    """The next five uniforms of a reference."""
    return reference.uniform("float", 5, 0.0, 1.0)


def assert_close(kind: str, wanted: list[Number], tensor: torch.Tensor, scale: float = 0.0) -> None:
    """Elements agree but for the rounding of log, exp, cos and the like; `scale` is that of what was added to them."""
    got = elements(tensor)
    assert len(wanted) == len(got)
    for one, other in zip(wanted, got, strict=True):
        assert abs(one - other) <= STEP[kind] * max(abs(one), scale, 1e-6), (one, other)


# ---------------------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize("n", SIZES)
def test_uniform(kind: str, n: int) -> None:
    """uniform_ gives the stream's numbers bit by bit and uses a block for four elements."""
    generator, reference = pair()
    drawn = empty(kind, n).uniform_(-1.5, 2.5, generator=generator)
    assert reference.uniform(kind, n, -1.5, 2.5) == elements(drawn)
    assert reference.state() == state_of(generator)
    assert OFFSET + math.ceil(n / 4) == generator.get_offset()


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("name", "words", "scale"),
    [
        ("normal", (10.0, 0.25), 10.0),
        ("exponential", (0.3,), 0.0),
        ("cauchy", (2.5, 3.0), 3.0),
        ("log_normal", (0.0, 0.25), 1.0),
    ],
)
def test_transcendental_distributions(kind: str, n: int, name: str, words: tuple[float, ...], scale: float) -> None:
    """The distributions through log, exp, cos and tan agree but for rounding; state exactly."""
    generator, reference = pair()
    drawn = getattr(empty(kind, n), f"{name}_")(*words, generator=generator)
    assert_close(kind, getattr(reference, name)(kind, n, *words), drawn, scale)
    assert reference.state() == state_of(generator)


@pytest.mark.parametrize("kind", GEOMETRIC)
def test_geometric(kind: str) -> None:
    """geometric_ gives whole numbers, in integer tensors too."""
    generator, reference = pair()
    drawn = empty(kind, 130).geometric_(0.3, generator=generator)
    assert reference.geometric(kind, 130, 0.3) == elements(drawn)
    assert reference.state() == state_of(generator)


@pytest.mark.parametrize("kind", BERNOULLI)
def test_bernoulli_with_one_probability(kind: str) -> None:
    """bernoulli_(p) gives zeros and ones in every type that has a kernel."""
    generator, reference = pair()
    drawn = empty(kind, 130).bernoulli_(0.3, generator=generator)
    assert reference.bernoulli(kind, 130, 0.3) == elements(drawn)
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
@pytest.mark.parametrize("n", [1, 2, 100, 384, 385, 1000, 2**15])
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
@pytest.mark.parametrize(("samples", "replacement"), [(1, False), (3, False), (1, True), (6, True)])
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


# ---------------------------------------------------------------------------------------------------- layouts

GAPLESS: dict[str, Draw] = {
    "uniform": lambda t, g: t.uniform_(generator=g),
    "random": lambda t, g: t.random_(0, 1000, generator=g),
    "bernoulli": lambda t, g: t.bernoulli_(0.5, generator=g),
}


@pytest.mark.parametrize("name", GAPLESS)
def test_a_target_without_gaps_is_filled_in_the_order_of_memory(name: str) -> None:
    """Transposed and channels_last tensors get the numbers in the order of their storage, not of their rows."""
    plain = GAPLESS[name](empty("float", 120), pair()[0])
    transposed = GAPLESS[name](empty("float", 12, 10).t(), pair()[0])
    assert torch.equal(plain.reshape(12, 10).t(), transposed)
    image = empty("float", 2, 5, 3, 4).to(memory_format=torch.channels_last)
    GAPLESS[name](image, pair()[0])
    assert torch.equal(plain.reshape(2, 3, 4, 5).permute(0, 3, 1, 2), image)


@pytest.mark.parametrize("name", GAPLESS)
def test_a_target_with_gaps_is_filled_row_by_row(name: str) -> None:
    """Any other target gets the numbers row by row; what lies between its elements stays."""
    base = torch.full((10, 24), -7.0, device="mps")
    view = base[:, ::2].t()
    generator = pair()[0]
    GAPLESS[name](view, generator)
    plain = GAPLESS[name](empty("float", 120), pair()[0])
    assert torch.equal(plain.reshape(12, 10), view)
    assert torch.equal(base[:, 1::2], torch.full((10, 12), -7.0, device="mps"))
    assert OFFSET + 30 == generator.get_offset()


def test_bernoulli_with_a_tensor_goes_row_by_row() -> None:
    """Unlike the other fills, bernoulli_(tensor) fills a transposed target row by row."""
    p = torch.linspace(0, 1, 35, device="mps").reshape(5, 7)
    plain = empty("float", 5, 7).bernoulli_(p, generator=pair()[0])
    assert torch.equal(plain, empty("float", 7, 5).t().bernoulli_(p, generator=pair()[0]))


def test_normal_fills_layouts_alike() -> None:
    """normal_ follows the same rule, through its own way into the kernel."""
    plain = empty("float", 120).normal_(generator=pair()[0])
    assert torch.equal(plain.reshape(12, 10).t(), empty("float", 12, 10).t().normal_(generator=pair()[0]))
    assert torch.equal(plain.reshape(12, 10), empty("float", 12, 20)[:, ::2].normal_(generator=pair()[0]))


def test_offset_into_a_storage() -> None:
    """A slice is filled where it lies."""
    base = torch.zeros(100, device="mps")
    base[10:20].uniform_(1, 2, generator=pair()[0])
    assert [10 <= i < 20 for i in range(100)] == (base >= 1).tolist()


@pytest.mark.parametrize("draw", [lambda t: t.uniform_(), lambda t: t.normal_(), lambda t: t.random_(5)])
def test_an_empty_target_draws_nothing(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Nothing to fill leaves the generator where it was."""
    before = torch.mps.get_rng_state()
    assert draw(empty("float", 0, 3)).shape == (0, 3)
    assert torch.equal(before, torch.mps.get_rng_state())


# ---------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize(
    "call",
    [
        lambda g: torch.rand(100_003, device="mps", generator=g),
        lambda g: torch.randn(100_003, device="mps", generator=g),
        lambda g: torch.randint(7, (50_001,), device="mps", generator=g),
        lambda g: torch.randperm(40_000, device="mps", generator=g),
        pytest.param(
            lambda g: torch._standard_gamma(torch.full((20_000,), 0.7, device="mps"), generator=g),
            marks=since_2_12,
        ),
        lambda g: torch.multinomial(torch.rand(20_000, 3, device="mps", generator=g), 2, generator=g),
    ],
    ids=["rand", "randn", "randint", "randperm", "gamma", "multinomial"],
)
def test_numbers_do_not_depend_on_threads(call: Callable[[torch.Generator], torch.Tensor]) -> None:
    """The same seed gives the same numbers for any torch.set_num_threads."""
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 8):
            torch.set_num_threads(count)
            results.append(call(pair()[0]))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert torch.equal(results[0], other)


def test_large_fills_equal_the_reference_everywhere() -> None:
    """Work that is split over threads still gives block i to elements 4 i to 4 i + 3."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        drawn = torch.rand(200_001, device="mps", generator=pair()[0]).cpu()
    finally:
        torch.set_num_threads(threads)
    for index in [0, 1, 4095, 4096, 12_345, 16_384, 16_385, 24_999, 25_000, 25_001, 49_999, 50_000]:
        words = philox_block(SEED, OFFSET + index)
        assert [float(unit(word)) for word in words][: 200_001 - 4 * index] == drawn[4 * index : 4 * index + 4].tolist()


def test_threads_that_share_a_generator_take_different_blocks() -> None:
    """Calls from several threads each take their own piece of the stream, and none twice."""
    generator, reference = pair()
    drawn: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(25):
            drawn.append(torch.rand(8, device="mps", generator=generator))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wanted = reference.uniform("float", 800, 0.0, 1.0)
    assert sorted(wanted) == sorted(value for tensor in drawn for value in elements(tensor))
    assert reference.state() == state_of(generator)


# ---------------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("kind", FLOATING)
def test_native_dropout(kind: str) -> None:
    """native_dropout keeps and scales by the stream, and skips a block an element, four times what it uses."""
    x = torch.linspace(-2, 2, 22, device="mps", dtype=DTYPES[kind])
    torch.mps.manual_seed(SEED)
    output, mask = torch.native_dropout(x, 0.25, True)
    both = Reference(SEED).dropout(kind, 22, 0.25, *elements(x))
    assert both[:22] == elements(output)
    assert both[22:] == elements(mask)
    assert torch.bool == mask.dtype
    assert Reference(SEED, 22).state() == bytes(torch.mps.get_rng_state().tolist())


def test_native_dropout_of_other_layouts_and_types() -> None:
    """A transposed input keeps its strides; a complex one is masked by the same draws; p = 1 drops everything."""
    x = torch.ones(6, 5, device="mps")
    torch.mps.manual_seed(SEED)
    plain, mask = torch.native_dropout(x, 0.5, True)
    torch.mps.manual_seed(SEED)
    turned, turned_mask = torch.native_dropout(x.t(), 0.5, True)
    assert torch.equal(plain.t(), turned) and torch.equal(mask.t(), turned_mask)
    assert x.t().stride() == turned.stride()
    torch.mps.manual_seed(SEED)
    complex_output, complex_mask = torch.native_dropout(x.to(torch.complex64), 0.5, True)
    assert torch.equal(plain, complex_output.real) and torch.equal(mask, complex_mask)
    dropped, none = torch.native_dropout(x, 1.0, True)
    assert not dropped.any() and not none.any()


@pytest.mark.parametrize(("p", "train"), [(0.5, False), (0.0, True), (0.5, None)])
def test_native_dropout_that_keeps_everything(p: float, train: bool | None) -> None:
    """Outside training, or with p = 0, the input comes back with a mask of ones and nothing is drawn."""
    before = torch.mps.get_rng_state()
    x = torch.randn(9, device="cpu").to("mps")
    output, mask = torch.native_dropout(x, p, train)
    assert torch.equal(x, output)
    assert mask.all()
    assert torch.equal(before, torch.mps.get_rng_state())


def test_dropout_takes_the_way_of_its_version() -> None:
    """Up to torch 2.14 the mask is bernoulli_(1 - p) and a block for four elements; from 2.15 on native_dropout's.

    Source: at::native::dropout in the macOS wheels 2.11 to 2.15; only that of 2.15 sends mps tensors to native_dropout.
    """
    x = torch.ones(22, device="mps")
    torch.mps.manual_seed(SEED)
    dropped = functional.dropout(x, 0.25)
    kept = Reference(SEED).bernoulli("float", 22, 0.75)
    assert kept == [int(value != 0) for value in elements(dropped)]
    assert_close("float", [value / 0.75 for value in kept], dropped)
    blocks = 22 if VERSION >= (2, 15) else 6
    assert Reference(SEED, blocks).state() == bytes(torch.mps.get_rng_state().tolist())


def test_dropout_under_autograd() -> None:
    """A module in training mode masks the gradient as it masked the output; in evaluation it draws nothing."""
    layer = nn.Dropout(0.5)
    x = torch.ones(40, device="mps", requires_grad=True)
    torch.mps.manual_seed(SEED)
    y = layer(x)
    torch.autograd.backward((y * torch.arange(40, device="mps")).sum())
    assert x.grad is not None
    assert torch.equal(y.detach() * torch.arange(40, device="mps"), x.grad)
    state = torch.mps.get_rng_state()
    assert torch.equal(x, layer.eval()(x))
    assert torch.equal(state, torch.mps.get_rng_state())


@pytest.mark.parametrize("layer", [nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_dropout_modules_repeat_with_the_seed(layer: type[nn.Module]) -> None:
    """The other dropout layers give the same mask for the same seed and another one after it."""
    shape = (4, 6, 3) if layer is nn.Dropout1d else (4, 6, 3, 3)
    x = torch.ones(*shape, device="mps")
    torch.mps.manual_seed(1)
    first, second = layer(0.5)(x), layer(0.5)(x)
    torch.mps.manual_seed(1)
    assert torch.equal(first, layer(0.5)(x))
    assert not torch.equal(first, second)


def test_dropout_between_lstm_layers_repeats_with_the_seed() -> None:
    """The dropout inside nn.LSTM follows the device's seed."""
    torch.manual_seed(0)
    net = nn.LSTM(4, 4, num_layers=2, dropout=0.5).to("mps")
    x = torch.ones(3, 2, 4, device="mps")
    torch.manual_seed(1)
    first, second = net(x)[0], net(x)[0]
    torch.manual_seed(1)
    assert torch.equal(first, net(x)[0])
    assert not torch.equal(first, second)


def test_dropout_repeats_in_a_checkpoint_that_restores_the_state() -> None:
    """A checkpoint whose contexts save and restore torch.mps' state recomputes with the first mask.

    By itself torch.utils.checkpoint does not do it on mps (tests/device/test_checkpointing.py).
    """
    states: list[torch.Tensor] = []
    masks: list[torch.Tensor] = []

    @contextmanager
    def saving() -> Iterator[None]:
        states.append(torch.mps.get_rng_state())
        yield

    @contextmanager
    def restoring() -> Iterator[None]:
        with torch.random.fork_rng(device_type="mps"):
            torch.mps.set_rng_state(states[-1])
            yield

    def block(x: torch.Tensor) -> torch.Tensor:
        masks.append(functional.dropout(x, 0.5))
        return masks[-1].exp()

    x = torch.ones(64, device="mps", requires_grad=True)
    with checkpoint.set_checkpoint_early_stop(False):
        y = checkpoint.checkpoint(block, x, use_reentrant=False, context_fn=lambda: (saving(), restoring()))
        after = torch.mps.get_rng_state()
        torch.autograd.backward(y.sum())
    first, second = (mask.detach() for mask in masks)
    assert torch.equal(first, second)
    assert x.grad is not None
    torch.testing.assert_close(first * first.exp(), x.grad)
    assert torch.equal(after, torch.mps.get_rng_state())


# ---------------------------------------------------------------------------------------------------- generators


def test_a_new_generator() -> None:
    """A generator that nobody seeded has the fixed seed, offset 0 and words 1, 0, 0, 0, 0, 0, 0."""
    generator = torch.Generator("mps")
    assert torch.device("mps", 0) == generator.device
    assert DEFAULT_SEED == generator.initial_seed()
    assert Reference().state() == state_of(generator)
    assert reference_numbers(Reference()) == elements(torch.rand(5, device="mps", generator=generator))


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 + 5, 2**64 - 1])
def test_manual_seed(seed: int) -> None:
    """Seeding sets words, seed and offset, and gives the stream of that seed."""
    generator = torch.Generator("mps")
    torch.rand(9, device="mps", generator=generator)
    assert generator.manual_seed(seed) is generator
    assert seed == generator.initial_seed()
    assert Reference(seed).state() == state_of(generator)
    assert reference_numbers(Reference(seed)) == elements(torch.rand(5, device="mps", generator=generator))


def test_a_negative_seed_counts_from_the_top() -> None:
    """manual_seed(-3) is manual_seed(2 ** 64 - 3), as on every device."""
    assert Reference(2**64 - 3).state() == state_of(torch.Generator("mps").manual_seed(-3))


def test_seed_draws_from_the_system() -> None:
    """seed() chooses a seed, rewinds, and returns it."""
    generator, _ = pair()
    seed = generator.seed()
    assert Reference(seed).state() == state_of(generator)


def test_offset_can_be_any_block() -> None:
    """get_offset and set_offset count blocks; unlike CUDA's they need not be multiples of four."""
    generator, reference = pair(5, 3)
    assert generator.get_offset() == 3
    assert reference_numbers(reference) == elements(torch.rand(5, device="mps", generator=generator))
    assert generator.get_offset() == 5


def test_state_is_restored_whole() -> None:
    """set_state brings back words, seed and offset; get_state is a copy."""
    generator, _ = pair()
    state = generator.get_state()
    assert (torch.uint8, (44,), "cpu") == (state.dtype, tuple(state.shape), state.device.type)
    first = torch.rand(9, device="mps", generator=generator)
    other = torch.Generator("mps")
    other.set_state(state)
    assert torch.equal(first, torch.rand(9, device="mps", generator=other))
    strange = torch.arange(44, dtype=torch.uint8)
    other.set_state(strange)
    assert torch.equal(strange, other.get_state())


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (lambda: torch.zeros(43, dtype=torch.uint8), RuntimeError, "RNG state is wrong size"),
        (lambda: torch.zeros(0, dtype=torch.uint8), RuntimeError, "RNG state is wrong size"),
        (lambda: torch.get_rng_state(), RuntimeError, "RNG state is wrong size"),
        (lambda: torch.zeros(44), TypeError, "RNG state must be a torch.ByteTensor"),
        (lambda: torch.zeros(44, dtype=torch.uint8, device="mps"), TypeError, "RNG state must be a torch.ByteTensor"),
        (lambda: torch.zeros(88, dtype=torch.uint8)[::2], RuntimeError, "RNG state must be contiguous"),
    ],
)
def test_states_that_are_none(state: Callable[[], torch.Tensor], error: type[Exception], text: str) -> None:
    """set_state refuses what is no state, and keeps the one it has."""
    generator, reference = pair()
    with pytest.raises(error) as raised:
        generator.set_state(state())
    assert text == str(raised.value)
    assert reference.state() == state_of(generator)


def test_clone_state() -> None:
    """A clone goes on from the same place on its own; up to 2.12 it starts from the seed again."""
    generator, reference = pair()
    torch.rand(9, device="mps", generator=generator)
    reference.offset += 3
    clone = generator.clone_state()
    wanted = reference if VERSION >= (2, 13) else Reference(SEED)
    assert wanted.state() == state_of(clone)
    assert reference_numbers(wanted) == elements(torch.rand(5, device="mps", generator=clone))
    assert OFFSET + 3 == generator.get_offset()


def test_generators_are_independent() -> None:
    """A generator of one's own leaves the default one alone, and the other way round."""
    before = torch.mps.get_rng_state()
    generator, reference = pair()
    torch.rand(100, device="mps", generator=generator)
    assert torch.equal(before, torch.mps.get_rng_state())
    torch.rand(100, device="mps")
    reference.offset += 25
    assert reference.state() == state_of(generator)


@pytest.mark.parametrize("seeding", [torch.manual_seed, torch.mps.manual_seed])
def test_seeding_the_default_generator(seeding: Callable[[int], object]) -> None:
    """torch.manual_seed and torch.mps.manual_seed start the device's stream at the seed."""
    host = torch.get_rng_state()
    try:
        seeding(99)
    finally:
        torch.set_rng_state(host)
    assert Reference(99).state() == bytes(torch.mps.get_rng_state().tolist())
    assert reference_numbers(Reference(99)) == elements(torch.rand(5, device="mps"))


@pytest.mark.parametrize("seeding", [torch.seed, torch.mps.seed])
def test_seeding_the_default_generator_by_chance(seeding: Callable[[], object]) -> None:
    """torch.seed and torch.mps.seed choose a new seed and rewind."""
    torch.mps.manual_seed(1)
    torch.rand(5, device="mps")
    host = torch.get_rng_state()
    try:
        seeding()
    finally:
        torch.set_rng_state(host)
    state = bytes(torch.mps.get_rng_state().tolist())
    assert Reference(int.from_bytes(state[28:36], "little")).state() == state
    assert state != Reference(1).state()


def test_rng_state_of_the_default_generator() -> None:
    """torch.mps.get_rng_state and set_rng_state repeat what was drawn."""
    state = torch.mps.get_rng_state()
    first = torch.randn(9, device="mps")
    torch.mps.set_rng_state(state)
    assert torch.equal(first, torch.randn(9, device="mps"))


def test_fork_rng() -> None:
    """fork_rng(device_type="mps") gives the device's stream back as it was."""
    torch.mps.manual_seed(3)
    first = torch.rand(5, device="mps")
    torch.mps.manual_seed(3)
    with torch.random.fork_rng(device_type="mps"):
        assert torch.equal(first, torch.rand(5, device="mps"))
        torch.mps.manual_seed(77)
        torch.rand(100, device="mps")
    assert torch.equal(first, torch.rand(5, device="mps"))


def test_the_stream_is_not_that_of_the_cpu() -> None:
    """The same seed gives other numbers on mps than on the CPU, as on a Mac."""
    host = torch.rand(8, generator=torch.Generator().manual_seed(0))
    there = torch.rand(8, device="mps", generator=torch.Generator("mps").manual_seed(0))
    assert not torch.equal(host, there.cpu())


# ---------------------------------------------------------------------------------------------------- callers


@pytest.mark.parametrize(
    "name",
    [f"{name}_" for name in ("uniform", "normal", "trunc_normal", "xavier_uniform", "xavier_normal", "kaiming_normal")],
)
def test_initialisers(name: str) -> None:
    """nn.init draws from the device's stream, or from the generator it is given."""
    parameter = nn.Parameter(empty("float", 6, 4))
    initialise = getattr(nn.init, name)
    torch.mps.manual_seed(SEED)
    first = initialise(parameter).detach().clone()
    given = initialise(parameter, generator=torch.Generator("mps").manual_seed(SEED)).detach()
    assert torch.equal(first, given)
    assert len(set(elements(first))) > 12


@pytest.mark.parametrize(
    "distribution",
    [
        lambda a, b: torch.distributions.Normal(a, b),
        lambda a, b: torch.distributions.Uniform(a, a + b),
        pytest.param(lambda a, b: torch.distributions.Gamma(a, b), marks=since_2_12),
        lambda a, b: torch.distributions.Laplace(a, b),
        lambda a, b: torch.distributions.Cauchy(a, b),
        lambda a, b: torch.distributions.LogNormal(a, b),
        lambda a, b: torch.distributions.Gumbel(a, b),
        lambda a, _: torch.distributions.Exponential(a),
        pytest.param(lambda a, _: torch.distributions.Chi2(a), marks=since_2_12),
        pytest.param(lambda a, _: torch.distributions.StudentT(a), marks=since_2_12),
        lambda a, _: torch.distributions.Bernoulli(a / 10),
        lambda a, _: torch.distributions.Geometric(a / 10),
        lambda a, _: torch.distributions.Categorical(a),
        lambda a, _: torch.distributions.Multinomial(9, a),
        lambda a, _: torch.distributions.MultivariateNormal(a, torch.eye(3, device="mps")),
    ],
)
def test_distributions(distribution: Callable[..., torch.distributions.Distribution]) -> None:
    """torch.distributions samples on the device and repeats with the seed."""
    made = distribution(torch.tensor([1.0, 2.0, 4.0], device="mps"), torch.tensor([1.0, 0.5, 2.0], device="mps"))
    torch.mps.manual_seed(4)
    first, second = made.sample((40,)), made.sample((40,))
    torch.mps.manual_seed(4)
    assert torch.equal(first, made.sample((40,)))
    assert not torch.equal(first, second)
    assert first.device.type == "mps"


@pytest.mark.skipif(VERSION < (2, 13), reason="_sample_dirichlet has an mps kernel from torch 2.13 on")
def test_beta_and_dirichlet() -> None:
    """Beta and Dirichlet, which draw through _sample_dirichlet, sample on the device."""
    concentration = torch.tensor([1.0, 2.0, 4.0], device="mps")
    torch.mps.manual_seed(4)
    beta = torch.distributions.Beta(concentration, concentration).sample((10,))
    dirichlet = torch.distributions.Dirichlet(concentration).sample((10,))
    assert bool(((beta > 0) & (beta < 1)).all())
    torch.testing.assert_close(dirichlet.sum(-1), torch.ones(10, device="mps"))


# ---------------------------------------------------------------------------------------------------- errors


def on_cpu() -> torch.Generator:
    """A generator that no operator of the device takes."""
    return torch.Generator("cpu")


FOREIGN = "Expected a 'mps' device type for generator but found 'cpu'"


@pytest.mark.parametrize(
    "call",
    [
        lambda g: torch.rand(2, device="mps", generator=g),
        lambda g: torch.randn(2, device="mps", generator=g),
        lambda g: torch.randint(5, (2,), device="mps", generator=g),
        lambda g: empty("float", 2).uniform_(generator=g),
        lambda g: empty("float", 2).normal_(generator=g),
        lambda g: empty("float", 2).exponential_(generator=g),
        lambda g: empty("float", 2).cauchy_(generator=g),
        lambda g: empty("float", 2).log_normal_(generator=g),
        lambda g: empty("float", 2).geometric_(0.5, generator=g),
        lambda g: empty("float", 2).bernoulli_(0.5, generator=g),
        lambda g: empty("float", 2).random_(generator=g),
        lambda g: torch.bernoulli(torch.ones(2, device="mps"), generator=g),
        lambda g: torch.normal(torch.ones(2, device="mps"), 1.0, generator=g),
        lambda g: torch.normal(1.0, torch.ones(2, device="mps"), generator=g),
        lambda g: torch.multinomial(torch.ones(2, device="mps"), 1, generator=g),
        lambda g: torch.multinomial(torch.ones(2, device="mps"), 4, True, generator=g),
        pytest.param(lambda g: torch._standard_gamma(torch.ones(2, device="mps"), generator=g), marks=since_2_12),
    ],
)
def test_a_generator_of_another_device(call: Callable[[torch.Generator], torch.Tensor]) -> None:
    """Every operator refuses a CPU generator with the backend's text."""
    with pytest.raises(RuntimeError) as raised:
        call(on_cpu())
    assert FOREIGN == str(raised.value)


def test_a_generator_of_another_device_for_randperm() -> None:
    """randperm names the index too."""
    with pytest.raises(RuntimeError) as raised:
        torch.randperm(3, device="mps", generator=on_cpu())
    assert str(raised.value) == "Expected a 'mps:0' generator device but found 'cpu'"


def test_a_generator_of_the_device_for_a_tensor_on_the_cpu() -> None:
    """The other way round the generator leads to the kernel of mps, which refuses the tensor in the release's words."""
    with pytest.raises(RuntimeError) as raised:
        torch.rand(2, generator=torch.Generator("mps"))
    assert str(raised.value) == (
        "Expected a 'cpu' device type for generator but found 'mps'"
        if VERSION >= (2, 13)
        else "Placeholder storage has not been allocated on MPS device!"
    )


def test_an_empty_target_takes_any_generator() -> None:
    """The generator is looked at only where something is drawn."""
    assert empty("float", 0).uniform_(generator=on_cpu()).shape == (0,)


since_2_13 = pytest.mark.skipif(VERSION < (2, 13), reason="the texts of the MPSGraph kernels up to 2.12 are others")


@since_2_13
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: empty("float", 3).uniform_(2, 1),
            RuntimeError,
            "uniform_ expects to return a [from, to) range, but found from=2 > to=1",
        ),
        (lambda: empty("half", 3).uniform_(0, 7e4), RuntimeError, "to is out of bounds for c10::Half"),
        (lambda: empty("int", 3).uniform_(), NotImplementedError, "\"check_uniform_bounds\" not implemented for 'Int'"),
        (lambda: empty("float", 3).normal_(0, -1), RuntimeError, "normal expects std >= 0.0, but found std -1"),
        (lambda: empty("int", 3).normal_(), TypeError, "normal_kernel_mps not implemented for 'Int'"),
        (lambda: empty("bool", 3).normal_(), TypeError, "normal_kernel_mps not implemented for 'Bool'"),
        (
            lambda: torch.normal(torch.ones(2, device="mps"), torch.tensor([1.0, -1.0], device="mps")),
            RuntimeError,
            "normal expects all elements of std >= 0.0",
        ),
        (
            lambda: empty("float", 3).exponential_(-1),
            RuntimeError,
            "exponential_ expects lambda > 0.0, but found lambda=-1",
        ),
        (
            lambda: empty("int", 3).exponential_(),
            RuntimeError,
            "Failed to create function state object for: exponential_int",
        ),
        (
            lambda: torch.empty(3, dtype=torch.complex64, device="mps").exponential_(),
            RuntimeError,
            "Failed to create function state object for: exponential_float2",
        ),
        (lambda: empty("float", 3).cauchy_(0, 0), RuntimeError, "cauchy_ expects sigma > 0.0, but found sigma=0"),
        (
            lambda: empty("int", 3).cauchy_(),
            RuntimeError,
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you "
            "specified int",
        ),
        (lambda: empty("float", 3).log_normal_(0, 0), RuntimeError, "log_normal_ expects std > 0.0, but found std=0"),
        (
            lambda: empty("long", 3).log_normal_(),
            RuntimeError,
            "Failed to create function state object for: log_normal_long",
        ),
        (lambda: empty("float", 3).geometric_(1), RuntimeError, "geometric_ expects p to be in (0, 1), but got p=1"),
        (
            lambda: empty("bool", 3).geometric_(0.5),
            RuntimeError,
            "Failed to create function state object for: geometric_bool",
        ),
        (
            lambda: empty("float", 3).bernoulli_(1.5),
            RuntimeError,
            "bernoulli_ expects p to be in [0, 1], but got p=1.5",
        ),
        (
            lambda: empty("float", 3).bernoulli_(torch.tensor(1.5, device="mps")),
            RuntimeError,
            "bernoulli_mps_ expects p to be in [0, 1], but got p=1.5",
        ),
        (
            lambda: empty("float", 3).bernoulli_(torch.tensor([0.5, -0.5, 0.5], device="mps")),
            RuntimeError,
            "bernoulli_mps_ expects p to be in [0, 1]",
        ),
        (
            lambda: empty("float", 3).bernoulli_(torch.ones(2, device="mps")),
            RuntimeError,
            "bernoulli_mps_: probability and self tensor should be of the same shape",
        ),
        (
            lambda: empty("uint", 3).bernoulli_(0.5),
            RuntimeError,
            "Failed to create function state object for: bernoulli_scalar_uint",
        ),
        (
            lambda: torch.empty(3, dtype=torch.complex64, device="mps").random_(),
            RuntimeError,
            "random_mps handles only integral, floating-point and boolean types",
        ),
        (
            lambda: empty("ushort", 3).random_(),
            NotImplementedError,
            "\"random_kernel_mps_range_calc\" not implemented for 'UInt16'",
        ),
        (
            lambda: torch.randperm(-1, out=empty("long", 0)),
            RuntimeError,
            "n must be non-negative, got-1",
        ),
        (
            lambda: torch.randperm(2050, dtype=torch.float16, device="mps"),
            RuntimeError,
            "n cannot be greater than 2049 for Half type.",
        ),
        (
            lambda: torch.randperm(300, dtype=torch.uint8, device="mps"),
            RuntimeError,
            "value cannot be converted to type uint8_t without overflow",
        ),
        (
            lambda: torch.multinomial(torch.ones(2, device="mps"), 0),
            RuntimeError,
            "cannot sample n_sample <= 0 samples",
        ),
        (
            lambda: torch.multinomial(torch.ones(2, device="mps"), 3),
            RuntimeError,
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        ),
        (
            lambda: torch.multinomial(torch.ones(2, 2, 2, device="mps"), 1),
            RuntimeError,
            "prob_dist must be 1 or 2 dim",
        ),
        (
            lambda: torch.multinomial(torch.ones(2, dtype=torch.int64, device="mps"), 1),
            RuntimeError,
            "multinomial only supports floating-point dtypes for input, got: Long",
        ),
        (
            lambda: torch.multinomial(torch.ones(2, device="mps"), 1, out=empty("int", 0)),
            RuntimeError,
            "multinomial expects Long tensor out, got: Int",
        ),
        (
            lambda: torch.multinomial(torch.ones(2**24 + 1, dtype=torch.float16, device="mps"), 1),
            RuntimeError,
            "number of categories cannot exceed 2^24",
        ),
        (
            lambda: torch.multinomial(torch.tensor([1.0, -1.0], device="mps"), 1),
            RuntimeError,
            "probability tensor contains either `inf`, `nan` or element < 0",
        ),
        (
            lambda: torch.multinomial(torch.tensor([1.0, math.nan], device="mps"), 1),
            RuntimeError,
            "probability tensor contains either `inf`, `nan` or element < 0",
        ),
        (
            lambda: torch.multinomial(torch.tensor([[1.0, 0.0], [0.0, 0.0]], device="mps"), 1),
            RuntimeError,
            "invalid multinomial distribution (sum of probabilities <= 0)",
        ),
        (
            lambda: torch.native_dropout(torch.ones(3, dtype=torch.int32, device="mps"), 0.5, True),
            RuntimeError,
            "native_dropout_mps: input must be a floating-point or complex tensor, got Int",
        ),
        (
            lambda: torch._standard_gamma(torch.ones(3, dtype=torch.int32, device="mps")),
            RuntimeError,
            "Failed to create function state object for: standard_gamma_int",
        ),
        (
            lambda: torch.empty(1, device="mps").expand(3).uniform_(),
            RuntimeError,
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation.",
        ),
    ],
)
def test_refused_parameters_and_types(call: Callable[[], object], error: type[Exception], text: str) -> None:
    """Bad parameters raise torch's texts, types without a kernel the backend's; some only at the next wait."""
    with pytest.raises(error) as raised:
        call()
        torch.mps.synchronize()
    assert text == str(raised.value)


@since_2_13
def test_checks_inside_kernels_raise_accelerator_errors() -> None:
    """What a Mac finds out while its GPU runs is a torch.AcceleratorError, a RuntimeError."""
    with pytest.raises(torch.AcceleratorError):
        torch.multinomial(torch.zeros(3, device="mps"), 1)
        torch.mps.synchronize()


def test_integer_ranges_are_checked_as_the_release_checks_them() -> None:
    """Up to torch 2.12 mps has its own random_mps_, which lets integers leave the dtype's range, and wrap."""
    since_13 = VERSION >= (2, 13)
    name = "random_" if since_13 else "random_mps_"
    with pytest.raises(RuntimeError, match="expects 'from' to be less") as raised:
        empty("int", 3).random_(5, 5)
    assert str(raised.value) == f"{name} expects 'from' to be less than 'to', but got from=5 >= to=5"
    if since_13:
        with pytest.raises(RuntimeError) as raised:
            torch.randint(0, 300, (3,), dtype=torch.uint8, device="mps")
        assert str(raised.value) == "to - 1 is out of bounds for unsigned char"
    else:
        assert torch.randint(290, 300, (3,), dtype=torch.uint8, device="mps").lt(44).all()
    assert torch.randint(0, 256, (0,), dtype=torch.uint8, device="mps").numel() == 0


def test_ranges_of_floats_are_told_under_the_name_that_the_release_has() -> None:
    """Bounds that meet when they are rounded to float16, and one from which on float16 knows no more whole numbers."""
    since_13 = VERSION >= (2, 13)
    name = "random_" if since_13 else "random_mps_"
    half = torch.empty(3, dtype=torch.float16, device="mps")
    with pytest.raises(RuntimeError) as raised:
        half.random_(2051, 2052)
    assert str(raised.value) == (
        f"{name} expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=2051 >= to=2050"
    )
    with pytest.raises(RuntimeError) as raised:
        half.random_(3000, None)
    to = "to_inc" if since_13 else "to"
    assert str(raised.value) == (
        f"{name} expects 'from' casted to dtype to be less than or equal to '{to}' casted to dtype, but got from=3000"
        f" > {to}=2048"
    )


def test_a_range_that_metal_would_divide_by(virtual_device: torch.device) -> None:
    """A range of 2^32 in a 4-byte tensor is refused in words of our own: Metal takes it modulo 2^32."""
    with pytest.raises(RuntimeError) as raised:
        empty("uint", 3).random_(0, 2**32)
    assert str(raised.value) == (
        "anymps: random_ over 4294967296 values into UInt32: Metal takes the range modulo 2^32, here 0, and divides by "
        "it. Use a range below 2^32 or an int64 tensor."
    )


def test_a_refused_call_leaves_the_stream_alone() -> None:
    """After a refusal the generator stands where it stood, and goes on."""
    generator, reference = pair()
    with pytest.raises(RuntimeError):
        empty("int", 3).exponential_(generator=generator)
    with pytest.raises(RuntimeError):
        empty("float", 3).uniform_(2, 1, generator=generator)
    assert reference_numbers(reference) == elements(torch.rand(5, device="mps", generator=generator))


# ---------------------------------------------------------------------------------------------------- recording


def test_draws_are_recorded(virtual_device: torch.device, tmp_path: Path) -> None:
    """Each call is one entry of its operator; a refused generator is a refusal with its text."""
    import anymps

    path = tmp_path / "recording.db"
    x = torch.ones(2, 3, device="mps")
    with anymps.record(path):
        torch.rand(4, device="mps")
        torch.multinomial(x, 1)
        torch.normal(x, x)
        torch.randperm(5, device="mps")
        with pytest.raises(RuntimeError):
            empty("float", 2).normal_(generator=on_cpu())
    with closing(sqlite3.connect(path)) as database, database:
        entries = database.execute(
            "select o.name, s.inputs, s.outputs from entries e join signatures s on e.signature = s.id"
            " join operators o on s.operator = o.id where o.name not like '%empty%' and e.flags & 2 = 0"
        ).fetchall()
        refusals = database.execute("select kind, error, message from refusals").fetchall()
    assert entries == [
        ("aten::uniform_", '["float32[4]"]', "[]"),
        ("aten::multinomial", '["float32[2, 3]"]', '["int64[2, 1]"]'),
        ("aten::normal.Tensor_Tensor", '["float32[2, 3]", "float32[2, 3]"]', '["float32[2, 3]"]'),
        ("aten::randperm.generator_out", '["int64[5]"]', "[]"),
    ]
    assert refusals == [("generator", "RuntimeError", FOREIGN)]
