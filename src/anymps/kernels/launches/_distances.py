"""The backward of distances of rows, and cross products.

Source: `Distance.mm` and `CrossKernel.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations/`, and the
arguments that the kernels of torch 2.13's wheel describe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import have_numbers, result_of
from anymps.kernels.launches._types import NAMES

_NARROW, _WIDE = 32, 128  # threads of a group of the backward of cdist


def _is_plain(call: Call, tensors: Sequence[torch.Tensor]) -> bool:
    return not call.foreign and have_numbers(tensors) and all(one.dtype in NAMES for one in tensors)


def _cdist_backward(call: Call) -> Work | None:
    gradient, x, other, distances = (call.given[name] for name in ("grad", "x1", "x2", "cdist"))
    p = call.given["p"]
    if call.written or p in (0.0, 2.0) or not _is_plain(call, (gradient, x, other, distances)):
        return None  # zeros, or made of other operators
    if x.dim() < 2 or any(one.dtype != x.dtype for one in (gradient, other)):
        return None
    columns = x.shape[-1]
    width = _WIDE if columns >= 2 * _NARROW else _NARROW
    kind = 1 if math.isinf(p) else 0 if p == 1.0 else 2
    name = f"cdist_backward_{NAMES[x.dtype]}_p{kind}_tg{width}"
    batch = torch._C._infer_size(x.shape[:-2], other.shape[:-2])
    x, other = (one.expand(*batch, *one.shape[-2:]).contiguous() for one in (x, other))
    if math.isinf(p) and x.dtype != torch.float32:  # the saved distances are rounded, and match no number
        apart = x.float().unsqueeze(-2).sub(other.float().unsqueeze(-3))
        distances = torch.linalg.vector_norm(apart, p, -1)
    rows, others = x.shape[-2], other.shape[-2]
    params = {"B": math.prod(batch), "P": rows, "R": others, "D": columns, "p_minus_1": p - 1.0}
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    buffers = (x, other, gradient.contiguous(), distances.float().contiguous(), out, params)
    threads = (-(-columns // width) * width, rows, params["B"])
    return Work((out,), (Launch(name, buffers, threads, (width, 1, 1)),))


def _cross(call: Call) -> Work | None:
    x, other = call.given["self"], call.given["other"]
    if not _is_plain(call, (x, other)) or x.dtype != other.dtype:
        return None
    shape = torch._C._infer_size(x.shape, other.shape)
    dim = call.given["dim"]
    out = result_of(call, shape, x.dtype)
    if out is None or dim is None:
        return None
    dim %= out.dim()
    x, other = x.expand(shape), other.expand(shape)
    dense = all(one.is_contiguous() for one in (out, x, other))
    name = f"cross_{'dense' if dense else 'strided'}_{NAMES[out.dtype]}"
    places: tuple[object, ...] = (out.stride(dim),)
    if not dense:
        sizes = [size for at, size in enumerate(shape) if at != dim]
        places = (sizes, *(list(one.stride()) for one in (out, x, other)), out.dim(), dim)
    return Work((out,), (Launch(name, (out, x, other, *places), (out.numel() // 3,)),))


DISTANCES: dict[str, Describe] = {
    "_cdist_backward": _cdist_backward,
    "linalg_cross": _cross,
}
