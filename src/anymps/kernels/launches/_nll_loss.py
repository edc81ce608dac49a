"""The negative log likelihood of torch 2.15: each loss by itself, and the gradients of all three reductions.

Source: the arguments that the kernels of torch 2.15's macOS wheel describe. Its sums and means over the losses are made
of further kernels, which are not described here.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._types import NAMES

_NONE, _MEAN = 0, 1
_ERRORS = 6
"""The slot of the error buffer: a target beyond the classes is reported there."""


def _params(call: Call, x: torch.Tensor) -> dict[str, Any]:
    """Of scores with their classes in the first dimension, or in the second behind the batch."""
    classes = 0 if x.dim() == 1 else 1
    behind = math.prod(x.shape[classes + 1 :])
    return {
        "n_classes": x.shape[classes],
        "map_size": behind,
        "batch_stride": x.shape[classes] * behind,
        "class_stride": behind,
        "ignore_index": call.given["ignore_index"],
        "tid_offset": 0,
        "has_weight": call.given["weight"] is not None,
    }


def _is_plain(call: Call, x: torch.Tensor) -> bool:
    weight, target = call.given["weight"], call.given["target"]
    same = weight is None or (weight.dtype == x.dtype and weight.is_contiguous())
    return not (call.foreign or call.written) and same and bool(x.numel()) and target.dtype == torch.int64


def _forward(call: Call) -> Work | None:
    x, target = call.given["self"], call.given["target"]
    name = f"nllnd_loss_forward_{NAMES.get(x.dtype)}"
    if not _is_plain(call, x) or call.given["reduction"] != _NONE:
        return None
    out, weights = (torch.empty(target.shape, dtype=x.dtype, device="cpu") for _ in range(2))
    buffers = (x.contiguous(), target.contiguous(), call.given["weight"], out, weights, _params(call, x))
    launch = Launch(name, buffers, (target.numel(),), errors=_ERRORS)
    return Work((out, torch.zeros((), dtype=x.dtype, device="cpu")), (launch,))


def _backward(call: Call) -> Work | None:
    x, target, gradient = (call.given[name] for name in ("self", "target", "grad_output"))
    name = f"nllnd_loss_backward_{NAMES.get(x.dtype)}"
    if not _is_plain(call, x) or gradient.dtype != x.dtype:
        return None
    reduction = call.given["reduction"]
    out = torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    params = {"forward": _params(call, x), "is_reduction": reduction != _NONE, "is_mean": reduction == _MEAN}
    given = (gradient.contiguous(), target.contiguous(), call.given["weight"], call.given["total_weight"])
    return Work((out,), (Launch(name, (out, *given, params), (target.numel(),), errors=_ERRORS),))


NLL_LOSS: dict[str, Describe] = {
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _forward),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _backward),
}
