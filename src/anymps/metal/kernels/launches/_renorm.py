"""Slices scaled down to a norm.

Source: `aten/src/ATen/native/mps/operations/RenormKernel.mm` of the pytorch tree: a kernel makes factors of norms, and
that of `mul` applies them. The norms before it are this machine's here.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import result_of, sizes_of, strides_of
from anymps.metal.kernels.launches._types import NAMES


def _renorm(call: Call) -> Work | None:
    x, of = call.given["self"], NAMES.get(call.given["self"].dtype)
    if not call.is_read or call.foreign or x.dim() < 2 or not x.numel() or not x.is_floating_point():
        return None
    kept = call.given["dim"] % x.dim()
    factors, product = (call.first([one]) for one in (f"renorm_{of}", f"mul_strided_{of}_{of}"))
    if factors is None or product is None or x.is_neg():
        return None
    norm = torch.linalg.vector_norm(x, call.given["p"], [at for at in range(x.dim()) if at != kept], keepdim=True)
    out = result_of(call, x.shape, x.dtype, (x,))
    if out is None:
        return None
    factor = torch.empty_like(norm)
    sizes = sizes_of(x.shape)
    strides = [strides_of(one, x.shape) for one in (out, x, factor)]
    launches = (
        Launch(factors, (norm.contiguous(), factor, float(call.given["maxnorm"])), (norm.numel(),)),
        Launch(product, (out, x, factor, sizes, *strides, [len(sizes), 0, 0]), (out.numel(),)),
    )
    return Work((out,), launches)


RENORM: dict[str, Describe] = {"renorm": _renorm}
