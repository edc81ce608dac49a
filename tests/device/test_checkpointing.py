"""Activation checkpointing of both kinds: gradients as without it, the random state, memory given back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

import anymps
from anymps.findings import find
from anymps.record import Recording
from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


def model() -> nn.Sequential:
    """Four blocks with weights that are the same every time."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)))


def gradients(net: nn.Sequential, run: Any, device: str) -> list[torch.Tensor]:
    """The gradients of input and parameters after `run(net, x)`."""
    net = net.to(device)
    x = values(4, 8).to(device).requires_grad_()
    run(net, x).pow(2).sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_are_those_without_checkpoints(reentrant: bool) -> None:
    """checkpoint of either kind leaves the gradients as they are on the CPU without it."""

    def run(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        for block in net:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return x

    expected = gradients(model(), lambda net, x: net(x), "cpu")
    assert_same(gradients(model(), run, "mps"), expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_sequential_checkpoints(reentrant: bool) -> None:
    """checkpoint_sequential in two segments gives the same gradients."""
    expected = gradients(model(), lambda net, x: net(x), "cpu")
    found = gradients(model(), lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=reentrant), "mps")
    assert_same(found, expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_random_state_of_mps_is_not_restored(reentrant: bool) -> None:
    """Dropout draws another mask in the recomputation: torch asks for `torch.mps._initialized`, which does not exist.

    Source: torch/utils/checkpoint.py, 2.11 to 2.15. The CPU's state is restored.
    """
    drawn: list[tuple[torch.Tensor, torch.Tensor]] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        there, here = torch.rand(100, device="mps"), torch.rand(100)
        drawn.append((there, here))
        return (x * there).exp()

    x = torch.ones(100, device="mps", requires_grad=True)
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        checkpoint(body, x, use_reentrant=reentrant, preserve_rng_state=True).sum().backward()
    (first, first_here), (second, second_here) = drawn
    assert torch.equal(first_here, second_here)
    assert not torch.equal(first, second)


def test_less_memory_is_held_between_forward_and_backward() -> None:
    """Checkpointed blocks hold only their inputs until backward."""

    def held(use: bool) -> int:
        net = model().to("mps")
        x = torch.ones(512, 8, device="mps", requires_grad=True)
        before = torch.mps.current_allocated_memory()
        y = x
        for block in net:
            y = checkpoint(block, y, use_reentrant=False) if use else block(y)
        after = torch.mps.current_allocated_memory()
        y.sum().backward()
        return after - before

    assert held(True) < held(False)


def test_nested_and_with_keyword_arguments() -> None:
    """Non-reentrant checkpoints nest and take keyword arguments and non-tensor results."""

    def inner(x: torch.Tensor, *, factor: float) -> torch.Tensor:
        return (x * factor).exp()

    def outer(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        return checkpoint(inner, x, use_reentrant=False, factor=0.5).sin(), "text"

    x = values(3).to("mps").requires_grad_()
    y, word = checkpoint(outer, x, use_reentrant=False)
    y.sum().backward()
    here = values(3).requires_grad_()
    outer(here)[0].sum().backward()
    assert word == "text"
    assert_same(x.grad, here.grad)


def test_selective_checkpointing() -> None:
    """A policy that saves matrix products only gives the same gradients."""
    saved = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]

    def run(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(net, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(saved))

    expected = gradients(model(), lambda net, x: net(x), "cpu")
    assert_same(gradients(model(), run, "mps"), expected)


def test_autocast_is_restored_in_the_recomputation() -> None:
    """The second forward runs under the autocast of the first."""
    seen: list[torch.dtype] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        seen.append((x @ x).dtype)
        return x @ x

    x = values(3, 3).to("mps").requires_grad_()
    with torch.autocast("mps", torch.bfloat16):
        y = checkpoint(body, x, use_reentrant=False)
    y.float().sum().backward()
    assert [torch.bfloat16, torch.bfloat16] == seen


def test_a_changed_recomputation_is_noticed() -> None:
    """A body that saves other tensors the second time raises torch's CheckpointError."""
    calls: list[int] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.exp() if len(calls) == 1 else x[:1].exp()

    x = values(3).to("mps").requires_grad_()
    y = checkpoint(body, x, use_reentrant=False)
    text = text_of(torch.utils.checkpoint.CheckpointError, y.sum().backward)
    assert "Recomputed values for the following tensors have different metadata" in text
    assert "device(type='mps', index=0)" in text


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recording_shows_the_second_draw(tmp_path: Path, reentrant: bool) -> None:
    """MPS663 names the dropout inside a checkpoint and leaves the one outside alone (pytorch/pytorch#127676)."""
    layer, inside, outside = nn.Linear(4, 4, device="mps"), nn.Dropout(0.5), nn.Dropout(0.5)

    def block(x: torch.Tensor) -> torch.Tensor:
        return inside(layer(x).relu())  # the dropout inside

    with anymps.record(tmp_path / "r.anymps"):
        for _ in range(3):
            x = torch.ones(2, 4, device="mps", requires_grad=True)
            y = checkpoint(block, x, use_reentrant=reentrant)
            outside(y).sum().backward()
    with Recording.open(tmp_path / "r.anymps") as recording:
        (finding,) = [one for one in find(recording) if one.id == "MPS663"]
    assert finding.site.source.endswith("# the dropout inside")
    assert finding.count == 6
