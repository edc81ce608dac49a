"""Activation checkpointing of both kinds: gradients as without it, the random state, autocast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import anymps
from anymps.findings import find
from anymps.record import Recording
from device.compare import assert_same, values

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
