"""Tensor subclasses, TorchDispatchMode, TorchFunctionMode, FakeTensorMode and meta beside mps tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


class Log(TorchDispatchMode):
    """Notes every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Wrapper(torch.Tensor):
    """A subclass that holds an mps tensor and unwraps it at every operator."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device,
            requires_grad=inner.requires_grad,
        )  # fmt: skip
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Wrapper, func(*args, **kwargs))


def test_a_dispatch_mode_sees_every_operator() -> None:
    """The mode sees forward and backward operators of mps tensors, and linear as one operator."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to("mps")
    x = values(2, 3).to("mps")
    with Log() as log:
        model(x).sum().backward()
    assert ["aten.linear.default", "aten.relu.default", "aten.sum.default"] == [
        name for name in log.seen if "detach" not in name
    ][:3]
    assert "aten.linear_backward.default" in log.seen
    assert "aten.threshold_backward.default" in log.seen


def test_wrapper_subclasses() -> None:
    """A wrapper subclass on mps runs operators, takes gradients and serves as a parameter."""
    x = Wrapper(values(2, 3).to("mps"))
    y = x @ x.t() + 1
    assert type(y) is Wrapper
    assert torch.device("mps:0") == y.device
    assert_same(y.inner, values(2, 3) @ values(2, 3).t() + 1)
    p = nn.Parameter(Wrapper(values(3).to("mps")))
    (p * 2).sum().backward()
    assert_same(p.grad.inner if isinstance(p.grad, Wrapper) else p.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x @ x.t() + 1,
        lambda x: nn.functional.conv2d(x[None, None], x.new_ones(2, 1, 2, 2)),
        lambda x: nn.functional.layer_norm(x, (4,)),
        lambda x: x.sort().values[:, ::2],
        lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: nn.functional.linear(x, x),
        lambda x: torch.cat([x, x.to(torch.float16).float()]),
        lambda x: x.new_empty(3).uniform_(),
        lambda x: torch.arange(3, device="mps"),
        lambda x: nn.functional.max_pool2d(x[None], 2),
        lambda x: nn.functional.embedding((x > 0).long(), x),
        lambda x: x.mean(0).softmax(0),
        lambda x: x.clone().add_(1)[0],
        lambda x: nn.functional.batch_norm(x, None, None, training=True),
    ],
)
def test_fake_tensors_predict_mps_results(body: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """FakeTensorMode gives the device, dtype, shape and strides that the call would have."""
    x = values(3, 4).to("mps")
    mode = FakeTensorMode()
    with mode:
        fake = body(mode.from_tensor(x))
    real = body(x)
    assert (real.device, real.dtype, real.shape, real.stride()) == (fake.device, fake.dtype, fake.shape, fake.stride())


@pytest.mark.usefixtures("still_memory")
def test_fake_tensors_made_and_moved() -> None:
    """Factories and moves inside FakeTensorMode know mps without touching its memory."""
    before = torch.mps.current_allocated_memory()
    with FakeTensorMode():
        x = torch.empty(1000, 1000, device="mps")
        assert torch.device("mps:0") == x.device
        assert x.cpu().device.type == "cpu"
        assert x.to("cpu").to("mps").is_mps
        model = nn.Linear(1000, 1000, device="mps")
        assert model(x).is_mps
        model(x).sum().backward()
        assert model.weight.grad.is_mps
    assert before == torch.mps.current_allocated_memory()


def test_inference_and_meta_meet_mps() -> None:
    """Meta tensors take their like from mps; mixing raises torch's text."""
    x = values(2).to("mps")
    assert torch.empty_like(x, device="meta").is_meta
    assert "mps:0" in text_of(RuntimeError, torch.add, x, torch.empty(2, device="meta"))
