"""Norms of numbers along dimensions, and cross products.

Source: `norm_kernel_mps` of the pytorch tree's
`aten/src/ATen/native/mps/operations/ReduceOps.mm`, at a state whose kernel names are those of torch 2.13's wheel.

Source of cross products: `CrossKernel.mm` beside it, and the arguments that the kernels of torch 2.13's wheel describe.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, result_of
from anymps.kernels.launches._reductions import READ, reduction_params, result_without
from anymps.kernels.launches._split_reductions import SPLIT, Op, reduced

_LANES, _MOST, _ROWS_GROUP = 32, 1024, 256
_REAL = {torch.complex64: torch.float32, torch.complex32: torch.float16}


def _norm_launch(x: torch.Tensor, out: torch.Tensor, p: float) -> Launch:
    """The launch of a norm; `out` has the dimensions of `x`, of size 1 where they go."""
    types = f"{NAMES.get(x.dtype)}_{NAMES.get(out.dtype)}"
    gone = [at for at in range(x.dim()) if x.shape[at] != out.shape[at]]
    rows = p in (1.0, 2.0) and out.numel() > 1 and x.is_contiguous() and out.is_contiguous() and not x.is_complex()
    if rows and gone == [x.dim() - 1]:
        name = f"norm_{'l2' if p == 2.0 else 'l1'}_reduction_inner_{types}"
        columns = x.shape[-1]
        groups = -(-(x.numel() // columns) // (_ROWS_GROUP // _LANES))
        sizes = [x.numel() // columns, columns]
        return Launch(name, (x, out, sizes, 0.0), (groups * _ROWS_GROUP,), (_ROWS_GROUP,))
    name = f"norm_{types}"
    numbers = x.numel() // out.numel()
    params = reduction_params(numbers, p, (x.shape, x.stride()), (out.shape, out.stride()))
    width = min(_MOST, numbers)
    return Launch(name, (x, out, params), (out.numel() * width,), (width,))


_SPLIT_NORMS = {0.0: "l0", 1.0: "l1", 2.0: "l2", math.inf: "inf", -math.inf: "neginf"}


def _split_norm(call: KernelCall, x: torch.Tensor, p: float, result: torch.dtype) -> Work | None:
    """As torch 2.15 finds them: partial results of sums are float32, those of extremes are as the tensor is."""
    which = _SPLIT_NORMS.get(p)
    if which is None or not x.is_floating_point():
        return None
    of, kernel = NAMES.get(x.dtype, ""), f"norm_{which}"
    if which in ("inf", "neginf"):
        return reduced(call, Op(kernel, kernel, (of, of), of), x, result, x.dtype)
    joins = "norm_l2_combine" if which == "l2" else "sum"
    types, number = (of, NAMES.get(result, "")), 2.0 if which == "l2" else 0.0
    return reduced(call, Op(kernel, joins, types, "float", number), x, result, torch.float32)


def _norm(call: KernelCall) -> Work | None:
    x = call.given["self"]
    p: Any = call.given.get("p", call.given.get("ord"))
    p = 2.0 if p is None else p
    result = _REAL.get(x.dtype, x.dtype)
    if call.given.get("dtype") not in (None, result) or isinstance(p, complex):
        return None
    if call.release == SPLIT:
        return _split_norm(call, x, float(p), result)
    is_number = x.is_floating_point() or x.is_complex()
    found = result_without(call, x, result) if call.release == READ and is_number else None
    if found is None:
        return None
    out, kept = found
    return Work((out,), (_norm_launch(x, kept, float(p)),))


def _cross(call: KernelCall) -> Work | None:
    x, other = call.given["self"], call.given["other"]
    if not call.takes(x, other) or x.dtype != other.dtype:
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


NORMS: dict[str, Describe] = {
    "norm": _norm,
    "linalg_vector_norm": _norm,
    "linalg_cross": _cross,
}
