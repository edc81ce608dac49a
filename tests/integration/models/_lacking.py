"""Models that need an operator without an MPS kernel.

Since when there is one: `native_functions.yaml` of the wheels, torch 2.13 to 2.15.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from integration.models._batches import CLASSES, images, labels
from integration.models._cases import Built, lacking
from integration.models._pictures_and_sound import wav2vec2_config


@lacking("aten::_ctc_loss", (2, 14), "transformers")
def speech_recognition() -> Built:
    from transformers import Wav2Vec2ForCTC

    return Wav2Vec2ForCTC(wav2vec2_config()), {
        "input_values": torch.randn(2, 800),
        "labels": torch.randint(1, 12, (2, 4)),
    }


class Applied(nn.Module):
    """A function behind a layer with weights."""

    def __init__(self, layer: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.function = function

    def forward(self, x: Tensor, **others: Tensor) -> Tensor:
        return self.function(self.layer(x), **others)


@lacking("aten::_adaptive_avg_pool3d")
def video_classifier() -> Built:
    layers = (nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten())
    return Applied(nn.Sequential(*layers, nn.Linear(32, CLASSES)), nn.Identity()), {"x": torch.randn(2, 3, 4, 8, 8)}


@lacking("aten::multi_margin_loss")
def support_vector_machine() -> Built:
    return Applied(nn.Linear(5, CLASSES), nn.functional.multi_margin_loss), {
        "x": torch.randn(4, 5),
        "target": labels(4),
    }


@lacking("aten::_linalg_eigh.eigenvalues", (2, 14))
def spectral_penalty() -> Built:
    return Applied(nn.Linear(5, 5), lambda x: torch.linalg.eigvalsh(x.mT @ x)), {"x": torch.randn(8, 5)}


@lacking("aten::linalg_matrix_exp", (2, 14))
def orthogonal_layer() -> Built:
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(5, 5))
    return Applied(layer, torch.tanh), {"x": torch.randn(4, 5)}


@lacking("aten::_upsample_bicubic2d_aa_backward.grad_input", (2, 14))
def super_resolution() -> Built:
    def smaller(x: Tensor) -> Tensor:  # the forward has a kernel, the backward has none
        return nn.functional.interpolate(x, size=(5, 5), mode="bicubic", antialias=True)

    return Applied(nn.Conv2d(3, 3, 3), smaller), {"x": images(12)}


@lacking("aten::_pdist_forward")
def metric_learning() -> Built:
    return Applied(nn.Linear(5, 3), nn.functional.pdist), {"x": torch.randn(6, 5)}


@lacking("aten::fake_quantize_per_tensor_affine_cachemask")
def quantization_aware() -> Built:
    def rounded(x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)

    return Applied(nn.Linear(5, 3), rounded), {"x": torch.randn(6, 5)}
