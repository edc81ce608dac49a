"""Generators of the device: their state of 44 bytes, seeds, and the default one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from random_draws import OFFSET, SEED, VERSION, elements, pair, reference_numbers, state_of
from reference_philox import DEFAULT_SEED, Reference

pytestmark = pytest.mark.usefixtures("random_device")


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
