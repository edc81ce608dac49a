"""Autograd on mps: backward, hooks, double backward, custom Functions, anomaly mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function

from anymps.device import enforce_hazards, state
from anymps.rules.faults import hazards
from device.compare import assert_same, same_gradients, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


def leaf(*shape: int, seed: int = 0) -> torch.Tensor:
    """A leaf on mps that requires gradients."""
    return values(*shape, seed=seed).to("mps").requires_grad_()


def test_double_backward() -> None:
    """Second and third derivatives equal those of the CPU."""

    def third(x: torch.Tensor) -> torch.Tensor:
        y = (x**4).sin().sum()
        for _ in range(3):
            (first,) = torch.autograd.grad(y, x, create_graph=True)
            y = first.sum()
        return first

    assert_same(third(leaf(4)).detach(), third(values(4).requires_grad_()).detach())


def test_saved_tensor_hooks() -> None:
    """pack and unpack hooks see the saved tensors; save_on_cpu moves them off the device and back."""
    x = leaf(3)
    packed: list[torch.device] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.device)
        return tensor.cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to("mps")):
        y = x.exp()
    y.sum().backward()
    assert [torch.device("mps:0")] == packed
    assert_same(x.grad, values(3).exp())
    x.grad = None
    with torch.autograd.graph.save_on_cpu():
        z = (x * x).sum()
    z.backward()
    assert_same(x.grad, 2 * values(3))


def test_an_exception_in_backward_reaches_the_caller() -> None:
    """An error raised inside a backward on the device's thread arrives with type and text, and the engine goes on."""

    class Broken(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise KeyError("from the backward")

    x = leaf(3)
    assert "from the backward" in text_of(KeyError, Broken.apply(x).sum().backward)
    text = text_of(RuntimeError, (x[0] * x).backward)
    assert text == "grad can be implicitly created only for scalar outputs"
    x.sum().backward()
    assert_same(x.grad, torch.ones(3))


def test_refusals_inside_backward_keep_their_class() -> None:
    """A backward that meets an operator without a kernel raises NotImplementedError in the caller's thread."""
    x = leaf(3)
    x.register_hook(torch.special.ndtri)
    text = text_of(NotImplementedError, x.sum().backward)
    assert text.startswith("The operator 'aten::special_ndtri.out' is not currently implemented for the MPS device.")


def test_grad_modes() -> None:
    """no_grad, inference_mode, enable_grad and set_grad_enabled act on mps tensors."""
    x = leaf(3)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
        assert y.is_inference()
        assert (y[1:] + torch.ones(1, device="mps")).is_inference()
        y.add_(1).view(-1)[0] = 5
        z = torch.empty(3, device="mps").copy_(y)
        assert torch.nn.functional.linear(z[None], torch.eye(3, device="mps")).is_inference()
    assert text_of(RuntimeError, lambda: x * y).startswith("Inference tensors cannot be saved for backward.")
    assert_same(y.clone() * 2, y.cpu().clone() * 2)
    with torch.autograd.set_grad_enabled(False):
        assert not (x + 1).requires_grad


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled", "ignore:Error detected in SqrtBackward0")
def test_anomaly_mode_names_the_forward() -> None:
    """detect_anomaly finds a NaN made in backward."""
    x = torch.zeros(2, device="mps", requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        y = (x.sqrt() * 0).sum()
        text = text_of(RuntimeError, y.backward)
    assert text == "Function 'SqrtBackward0' returned nan values in its 0th output."


def test_gradient_clipping_and_norms() -> None:
    """clip_grad_norm_, and clip_grad_value_ equal the CPU's; foreach=True is refused by torch."""
    for foreach in (None, False):
        norms, grads = [], []
        for device in ("cpu", "mps"):
            model = nn.Linear(4, 3)
            with torch.no_grad():
                model.weight.copy_(values(3, 4))
                model.bias.zero_()
            model.to(device)
            model(values(5, 4).to(device)).pow(2).sum().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=foreach))
            nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=foreach)
            grads.append(model.weight.grad)
        assert_same(norms[1], norms[0])
        assert_same(grads[1], grads[0])
    text = text_of(RuntimeError, nn.utils.clip_grad_norm_, model.parameters(), 1.0, foreach=True)
    assert text == "foreach=True was passed, but can't use the foreach API on mps tensors"
    bad = nn.Parameter(torch.ones(2, device="mps"))
    bad.grad = torch.full((2,), float("nan"), device="mps")
    text = text_of(RuntimeError, nn.utils.clip_grad_norm_, [bad], 1.0, error_if_nonfinite=True)
    assert text.startswith("The total norm of order 2.0 for gradients from `parameters` is non-finite")


@pytest.fixture
def no_known_faults() -> Iterator[None]:
    """The device computes what a Mac of this release dies of (MPS609, MPS637)."""
    current = state()
    if current is None or current.mac is None:
        pytest.skip("a Mac's process ends there up to torch 2.13")
    enforce_hazards(())
    yield
    enforce_hazards(hazards(torch.__version__, current.mac.macos, current.mac.metal_family))


@pytest.mark.parametrize("shapes", [((2, 3, 0), (4, 0)), ((0, 3), (4, 3)), ((2, 5, 3), (3,)), ((3,), (3,))])
def test_linear_of_unusual_shapes(shapes: tuple[tuple[int, ...], tuple[int, ...]], no_known_faults: None) -> None:
    """Gradients of linear without features or rows, and with a weight that is one row, are those of the CPU."""
    same_gradients(torch.nn.functional.linear, values(*shapes[0]), values(*shapes[1]))
