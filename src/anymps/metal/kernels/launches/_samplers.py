"""Gradients of samplers, each number by itself: of Gamma's and of Dirichlet's distribution.

Source: the arguments that the kernels of torch 2.13's wheel describe; `Distributions.mm` of the pytorch tree.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES


def _gradient(call: Call, kernel: str, *names: str) -> Work | None:
    tensors = [call.given[name] for name in names]
    first = tensors[0]
    if call.written or call.foreign or not first.numel():
        return None
    if any(one.dtype != first.dtype or one.shape != first.shape or one.is_neg() for one in tensors):
        return None
    name = call.first([f"{kernel}_{NAMES.get(first.dtype)}"])
    if name is None:
        return None
    out = torch.empty(first.shape, dtype=first.dtype, device="cpu")
    return Work((out,), (Launch(name, (out, *(one.contiguous() for one in tensors)), (out.numel(),)),), kept=True)


SAMPLERS: dict[str, Describe] = {
    "_standard_gamma_grad": lambda call: _gradient(call, "standard_gamma_grad", "self", "output"),
    "_dirichlet_grad": lambda call: _gradient(call, "dirichlet_grad", "x", "alpha", "total"),
}
