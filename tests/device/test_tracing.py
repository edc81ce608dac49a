"""Compilers and tracers that do not generate code: torch.compile eager and aot_eager, jit, export, fx, make_fx."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from device.compare import assert_same, values

pytestmark = [
    pytest.mark.usefixtures("mps_device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))


def attend(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]).sum(0) * x


def loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x.clone()
        x[0] += 1
    return x * 2 if x.shape[0] > 2 else x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions_and_gradients(backend: str) -> None:
    """torch.compile without code generation gives the results and gradients of eager mode."""
    torch._dynamo.reset()
    for body in (attend, loop):
        x = values(3, 4).to("mps").requires_grad_()
        y = torch.compile(body, backend=backend)(x)
        y.sum().backward()
        here = values(3, 4).requires_grad_()
        body(here).sum().backward()
        assert_same(y.detach(), body(here).detach(), strides=False)
        assert_same(x.grad, here.grad, strides=False)


@pytest.mark.parametrize("how", ["trace", "script", "freeze"])
def test_torchscript(how: str) -> None:
    """Traced, scripted and frozen modules run on mps, forward and backward."""
    model = net().eval()
    expected = model(values(3, 4))
    there = net().eval().to("mps")
    made = torch.jit.trace(there, values(3, 4).to("mps")) if how == "trace" else torch.jit.script(there)
    if how == "freeze":
        made = torch.jit.freeze(made)
    for _ in range(3):  # the profiling executor optimises after the second run
        found = made(values(3, 4).to("mps"))
        assert_same(found.detach(), expected.detach(), strides=False)
    if how != "freeze":
        found.sum().backward()
        assert all(p.grad.is_mps for p in made.parameters())


def test_scripted_functions_know_the_device() -> None:
    """Device arguments, `.device` and `.is_mps` work in TorchScript."""

    def make(x: torch.Tensor, device: torch.device) -> torch.Tensor:
        return torch.zeros(2, device=device) + x.to(device)

    made = torch.jit.script(make)
    assert_same(made(values(2), torch.device("mps")), values(2))


@pytest.mark.parametrize("function", [attend, loop, lambda x: nn.functional.softmax(x @ x.t(), -1)])
def test_make_fx_records_mps_graphs(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """make_fx in real and fake mode gives a graph that computes the same."""
    x = values(3, 4).to("mps")
    for mode in ("real", "fake"):
        graph = make_fx(function, tracing_mode=mode)(x)
        assert_same(graph(x), function(x.cpu()), strides=False)


def test_symbolic_tracing_and_export() -> None:
    """fx.symbolic_trace and torch.export of an mps module run on mps."""
    model = net().eval().to("mps")
    x = values(3, 4).to("mps")
    expected = net().eval()(values(3, 4)).detach()
    assert_same(torch.fx.symbolic_trace(model)(x).detach(), expected, strides=False)
    exported = torch.export.export(model, (x,))
    assert_same(exported.module()(x).detach(), expected, strides=False)
    exported.run_decompositions()
