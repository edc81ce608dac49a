"""Layers and losses: norms, activations, pooling, padding, upsampling, embeddings, every loss, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from device.compare import needs_kernel, same, same_gradients, same_module, values

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    # norms
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "BatchNorm2d without statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), (4, 3, 5, 5)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(3), (4, 3, 2, 2, 2)),
    "BatchNorm2d eval": (lambda: nn.BatchNorm2d(3).eval(), (4, 3, 5, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (4, 3, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (3, 5, 4)),
    "LayerNorm two dims": (lambda: nn.LayerNorm((5, 4)), (3, 5, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (3, 5, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (2, 4, 3, 3)),
    # activations
    **{
        kind.__name__: (kind, (3, 4))
        for kind in (
            nn.ReLU, nn.ReLU6, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardsigmoid,
            nn.Hardtanh, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink, nn.LeakyReLU, nn.LogSigmoid, nn.Softplus,
            nn.Softsign, nn.Sigmoid, nn.Tanh, nn.PReLU, nn.Flatten, nn.Identity, nn.GLU,
        )
    },
    "GELU tanh": (lambda: nn.GELU("tanh"), (3, 4)),
    "Threshold": (lambda: nn.Threshold(0.1, -1.0), (3, 4)),
    "Softmax": (lambda: nn.Softmax(1), (3, 4)),
    "LogSoftmax": (lambda: nn.LogSoftmax(0), (3, 4)),
    # pooling
    "MaxPool1d": (lambda: nn.MaxPool1d(2), (2, 3, 7)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 3, 6, 6)),
    "MaxPool2d padded": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 3, 7, 7)),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), (1, 2, 4, 4, 4)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), (2, 3, 6, 6)),
    "AvgPool2d padded": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 3, 7, 7)),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), (1, 2, 4, 4, 4)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), (2, 3, 6, 6)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), (2, 3, 6, 6)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), (2, 3, 6, 6)),
    # shapes
    "ZeroPad2d": (lambda: nn.ZeroPad2d(1), (2, 3, 4, 4)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), (2, 3, 4, 4)),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(1), (1, 2, 3, 3, 3)),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(1), (2, 3, 4, 4)),
    "ReplicationPad3d": (lambda: nn.ReplicationPad3d(1), (1, 2, 3, 3, 3)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (2, 4, 3, 3)),
    "Upsample nearest": (lambda: nn.Upsample(scale_factor=2), (2, 3, 4, 4)),
    "Upsample nearest-exact": (lambda: nn.Upsample(scale_factor=1.5, mode="nearest-exact"), (2, 3, 4, 4)),
    "Upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 4)),
    "Upsample bicubic": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), (2, 3, 4, 4)),
    "Upsample trilinear": (lambda: nn.Upsample(scale_factor=2, mode="trilinear"), (1, 2, 3, 3, 3)),
    "Linear": (lambda: nn.Linear(4, 5), (3, 4)),
    "Linear 3-D": (lambda: nn.Linear(4, 5, bias=False), (2, 3, 4)),
    "Bilinear": (lambda: _Twice(nn.Bilinear(4, 4, 3)), (3, 4)),
}  # fmt: skip


class _Twice(nn.Module):
    """Calls a module of two arguments with a tensor and its double."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(x, 2 * x + 1)
        return result


@pytest.mark.parametrize("name", list(MODULES))
def test_modules_equal_those_on_the_cpu(name: str) -> None:
    """Output, gradients of inputs and parameters, and buffers after the step agree."""
    torch.manual_seed(0)
    make, shape = MODULES[name]
    same_module(make(), values(*shape))


@pytest.mark.parametrize(
    "name", ["BatchNorm2d", "LayerNorm", "Linear", "GELU", "MaxPool2d", "AvgPool2d", "Softmax", "GroupNorm"]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_modules_in_half_precision(name: str, dtype: torch.dtype) -> None:
    """Layers run in float16 and bfloat16 and stay close to float32."""
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module, x = make().to(dtype), values(*shape, dtype=dtype)
    found = module.to("mps")(x.to("mps"))
    assert dtype == found.dtype
    torch.testing.assert_close(found.float().cpu(), module.cpu().float()(x.float()), rtol=5e-2, atol=5e-2)


CLASSES = torch.tensor([0, 2, 1])
TARGETS = values(3, 4, seed=5)
LOSSES: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "L1": (nn.L1Loss(), (values(3, 4), TARGETS)),
    "MSE": (nn.MSELoss(), (values(3, 4), TARGETS)),
    "SmoothL1": (nn.SmoothL1Loss(), (values(3, 4), TARGETS)),
    "Huber": (nn.HuberLoss(delta=0.5), (values(3, 4), TARGETS)),
    "CrossEntropy": (nn.CrossEntropyLoss(), (values(3, 4), CLASSES)),
    "CrossEntropy options": (
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0]), ignore_index=2, label_smoothing=0.1),
        (values(3, 4), CLASSES),
    ),
    "CrossEntropy probabilities": (nn.CrossEntropyLoss(), (values(3, 4), TARGETS.softmax(1))),
    "CrossEntropy 2-D": (nn.CrossEntropyLoss(), (values(2, 3, 4, 4), torch.arange(32).view(2, 4, 4) % 3)),
    "NLL": (nn.NLLLoss(), (values(3, 4).log_softmax(1), CLASSES)),
    "NLL 2-D": (nn.NLLLoss(), (values(2, 3, 4, 4).log_softmax(1), torch.arange(32).view(2, 4, 4) % 3)),
    "BCE": (nn.BCELoss(), (values(3, 4).sigmoid(), TARGETS.sigmoid())),
    "BCEWithLogits": (nn.BCEWithLogitsLoss(pos_weight=torch.ones(4) * 2), (values(3, 4), TARGETS.sigmoid())),
    "KLDiv": (nn.KLDivLoss(reduction="batchmean"), (values(3, 4).log_softmax(1), TARGETS.softmax(1))),
    "PoissonNLL": (nn.PoissonNLLLoss(), (values(3, 4), TARGETS.abs())),
    "GaussianNLL": (nn.GaussianNLLLoss(), (values(3, 4), TARGETS, values(3, 4, seed=9).abs() + 0.1)),
    "HingeEmbedding": (nn.HingeEmbeddingLoss(), (values(3, 4), TARGETS.sign())),
    "CosineEmbedding": (nn.CosineEmbeddingLoss(), (values(3, 4), TARGETS, torch.tensor([1.0, -1.0, 1.0]))),
    "TripletMargin": (nn.TripletMarginLoss(), (values(3, 4), TARGETS, values(3, 4, seed=7))),
    "MultiLabelSoftMargin": (nn.MultiLabelSoftMarginLoss(), (values(3, 4), (TARGETS > 0).float())),
}


@pytest.mark.parametrize("name", list(LOSSES))
def test_losses_equal_those_on_the_cpu(name: str) -> None:
    """Value and gradients of every loss agree."""
    module, arguments = LOSSES[name]
    prediction, *rest = arguments

    def loss(module: nn.Module, prediction: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = module(prediction, *(tensor.to(prediction.device) for tensor in rest))
        return result

    same_gradients(loss, module, prediction)


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


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags(mode: str) -> None:
    """EmbeddingBag with offsets agrees in every mode."""
    torch.manual_seed(0)
    same_module(nn.EmbeddingBag(6, 3, mode=mode), torch.tensor([0, 2, 2, 5, 1]), torch.tensor([0, 2]))


def test_grid_sampling() -> None:
    """affine_grid and grid_sample agree, forward and backward."""

    def warp(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, F.affine_grid(theta, [2, 3, 4, 4], align_corners=False), align_corners=False)

    same(warp, values(2, 3, 5, 5), values(2, 2, 3))
    same(
        F.grid_sample, values(1, 1, 4, 4), values(1, 3, 3, 2), mode="nearest", padding_mode="border", align_corners=True
    )
    needs_kernel("grid_sampler_2d_backward")
    same_gradients(warp, values(2, 3, 5, 5), values(2, 2, 3))


def test_integer_and_bool_pooling_in_a_wider_type() -> None:
    """MPS pools integers, which the CPU does not: the result is that of float, cast back."""
    x = values(1, 1, 4, 4, dtype=torch.int32).to("mps")
    y = F.max_pool2d(x, 2)
    assert torch.int32 == y.dtype
    assert torch.equal(F.max_pool2d(x.float().cpu(), 2).int(), y.cpu())
