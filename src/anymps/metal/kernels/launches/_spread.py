"""Windows added up where they overlap, and numbers put back where a pool found them.

Source: `UnfoldBackward.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, and for the unpooling the
arguments that the kernels of torch 2.13's wheel describe.
"""

from __future__ import annotations

from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.metal.kernels.launches._elements import have_numbers
from anymps.metal.kernels.launches._types import NAMES

_ERRORS = 4  # the slot of the error buffer of an unpooling


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return call.is_read and not call.written and not call.foreign and have_numbers(tensors)


def _unfold_backward(call: Call) -> Work | None:
    gradient, shape = call.given["grad_in"], call.given["input_sizes"]
    name = call.first([f"unfold_backward_{NAMES.get(gradient.dtype)}"])
    if name is None or not _is_plain(call, gradient) or not shape or 0 in shape:
        return None
    out = torch.zeros(shape, dtype=gradient.dtype, device="cpu")
    settings = [call.given["dim"] % len(shape), call.given["size"], call.given["step"], len(shape)]
    buffers = (gradient, out, gradient.stride(), list(shape), out.stride(), settings)
    return Work((out,), (Launch(name, buffers, (out.numel(),)),), kept=True, made=(Made(out, "zeros"),))


def _unpool(call: Call, dims: int) -> Work | None:
    x, places, size = (call.given[name] for name in ("self", "indices", "output_size"))
    name = call.first([f"max_unpool_{NAMES.get(x.dtype)}"])
    if name is None or not _is_plain(call, x, places) or x.dim() not in (dims + 1, dims + 2) or len(size) != dims:
        return None
    if places.shape != x.shape or places.dtype != torch.int64 or min(size) <= 0:
        return None
    out = torch.zeros((*x.shape[:-dims], *size), dtype=x.dtype, device="cpu")
    params: dict[str, Any] = {"dims": x.dim(), "pooling_dims": dims, "indices_strides": places.stride()}
    for word, one in (("input", x), ("output", out)):
        params |= {f"{word}_sizes": list(one.shape), f"{word}_strides": one.stride()}
    return Work((out,), (Launch(name, (out, x, places, params), (x.numel(),), None, _ERRORS),))


SPREAD: dict[str, Describe] = {
    "unfold_backward": _unfold_backward,
    "max_unpool2d": lambda call: _unpool(call, 2),
    "max_unpool3d": lambda call: _unpool(call, 3),
}
