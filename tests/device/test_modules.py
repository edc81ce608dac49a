"""Layers with parameters and buffers, and in half precision; tests/conformance has what functions compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from device.compare import same_module, values

pytestmark = pytest.mark.usefixtures("mps_device")

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "BatchNorm2d eval": (lambda: nn.BatchNorm2d(3).eval(), (4, 3, 5, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (4, 3, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (3, 5, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "GELU": (nn.GELU, (3, 4)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 3, 6, 6)),
    "Softmax": (lambda: nn.Softmax(1), (3, 4)),
    "Linear": (lambda: nn.Linear(4, 5), (3, 4)),
}


@pytest.mark.parametrize("name", list(MODULES))
def test_modules_equal_those_on_the_cpu(name: str) -> None:
    """Output, gradients of inputs and parameters, and buffers after the step agree."""
    torch.manual_seed(0)
    make, shape = MODULES[name]
    same_module(make(), values(*shape))


@pytest.mark.parametrize("name", ["BatchNorm2d", "LayerNorm", "Linear", "GELU", "MaxPool2d", "Softmax", "GroupNorm"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_modules_in_half_precision(name: str, dtype: torch.dtype) -> None:
    """Layers run in float16 and bfloat16 and stay close to float32."""
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module, x = make().to(dtype), values(*shape, dtype=dtype)
    found = module.to("mps")(x.to("mps"))
    assert dtype == found.dtype
    torch.testing.assert_close(found.float().cpu(), module.cpu().float()(x.float()), rtol=5e-2, atol=5e-2)


EMBEDDINGS: dict[str, nn.Module] = {
    "plain": nn.Embedding(6, 3),
    "padding": nn.Embedding(6, 3, padding_idx=2),
    "scaled by frequency": nn.Embedding(6, 3, scale_grad_by_freq=True),
}


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("name", list(EMBEDDINGS))
def test_embeddings(name: str, index: torch.dtype) -> None:
    """Embedding forward and its gradient agree, with repeated indices and both index types."""
    same_module(EMBEDDINGS[name], torch.tensor([[0, 2, 2], [5, 1, 0]], dtype=index))
