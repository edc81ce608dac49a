"""Convolutions over images with a kernel of 256 or more in one dimension, which torch 2.15 keeps from MPSGraph.

Source: `aten/src/ATen/native/mps/operations/Convolution.mm` of the pytorch tree (mps_convolution_2d_large_kernel): it
says that MPSGraph computes these wrong.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import MOST_32, NAMES

_LARGE = 256
_BLOCKED = 32_768
"""From so many threads on each computes four neighbours."""


def _convolution(call: Call) -> Work | None:
    x, weight, bias = (call.given[name] for name in ("input", "weight", "bias"))
    if call.foreign or call.given["transposed"] or x.dim() != 4 or max(weight.shape[2:]) < _LARGE:
        return None
    if weight.dtype != x.dtype or x.dtype not in NAMES or (bias is not None and bias.dtype != x.dtype):
        return None
    stride, padding, dilation = (call.given[name] for name in ("stride", "padding", "dilation"))
    sizes = [
        (x.shape[2 + at] + 2 * padding[at] - dilation[at] * (weight.shape[2 + at] - 1) - 1) // stride[at] + 1
        for at in range(2)
    ]
    if min(sizes) < 1 or not x.numel():
        return None
    out = torch.empty((x.shape[0], weight.shape[0], *sizes), dtype=x.dtype, device="cpu")
    blocked = out.numel() // sizes[1] * -(-sizes[1] // 4)
    four = blocked >= _BLOCKED
    small = all(one.numel() <= MOST_32 for one in (x, weight, out))
    name = call.first([f"conv2d_r{4 if four else 1}_i{32 if small else 64}_{NAMES[x.dtype]}"])
    if name is None:
        return None
    params = {
        "N": x.shape[0],
        "C_in": x.shape[1],
        "C_out": weight.shape[0],
        "H": x.shape[2],
        "W": x.shape[3],
        "outH": sizes[0],
        "outW": sizes[1],
        "kH": weight.shape[2],
        "kW": weight.shape[3],
        "sH": stride[0],
        "sW": stride[1],
        "padH": padding[0],
        "padW": padding[1],
        "dH": dilation[0],
        "dW": dilation[1],
        "C_in_per_group": weight.shape[1],
        "C_out_per_group": weight.shape[0] // call.given["groups"],
        "has_bias": bias is not None,
    }
    given = (x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous(), out, params)
    return Work((out,), (Launch(name, given, (blocked if four else out.numel(),)),))


CONVOLUTIONS: dict[str, Describe] = {"convolution": _convolution}
