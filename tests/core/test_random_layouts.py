"""Random numbers by where they are written, and by thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from random_draws import (
    OFFSET,
    SEED,
    Draw,
    elements,
    empty,
    pair,
    since_2_12,
    state_of,
)
from reference_philox import block as philox_block
from reference_philox import unit

pytestmark = pytest.mark.usefixtures("random_device")


GAPLESS: dict[str, Draw] = {
    "uniform": lambda t, g: t.uniform_(generator=g),
    "random": lambda t, g: t.random_(0, 1000, generator=g),
    "bernoulli": lambda t, g: t.bernoulli_(0.5, generator=g),
    "normal": lambda t, g: t.normal_(generator=g),  # goes its own way into the kernel
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
