"""Dropout on the device: each of its ways draws from the Metal stream, and repeats with the seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

from random_draws import DTYPES, FLOATING, SEED, VERSION, assert_close, elements
from reference_philox import Reference

pytestmark = pytest.mark.usefixtures("random_device")


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.75, 1.0])
def test_native_dropout(kind: str, p: float) -> None:
    """native_dropout keeps and scales by the stream, and skips a block an element, four times what it uses."""
    x = torch.linspace(-2, 2, 22, device="mps", dtype=DTYPES[kind])
    torch.mps.manual_seed(SEED)
    output, mask = torch.native_dropout(x, p, True)
    both = Reference(SEED).dropout(kind, 22, p, *elements(x))
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
