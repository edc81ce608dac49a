"""Norms of numbers along dimensions, slices scaled down to a norm, and where the extremes stand.

Source: `norm_kernel_mps` and `argmax_argmin_out_mps` of the pytorch tree's
`aten/src/ATen/native/mps/operations/ReduceOps.mm`, at a state whose kernel names are those of torch 2.13's wheel.

Source of `renorm`: `aten/src/ATen/native/mps/operations/RenormKernel.mm` of the pytorch tree. A kernel makes factors of
norms, and that of `mul` applies them. The norms before it are this machine's here.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import result_of, sizes_of, strides_of
from anymps.kernels.launches._reductions import READ, named_dims, reduction_params, result_without
from anymps.kernels.launches._split_reductions import SPLIT, Op, reduced
from anymps.kernels.launches._types import NAMES, of_numbers

_LANES, _MOST, _TILE, _ROWS_GROUP = 32, 1024, 32, 256
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


def _split_norm(call: Call) -> Work | None:
    """As torch 2.15 finds them: partial results of sums are float32, those of extremes are as the tensor is."""
    x, p = call.given["self"], call.given.get("p", call.given.get("ord"))
    p = 2.0 if p is None else p
    result, which = _REAL.get(x.dtype, x.dtype), None if isinstance(p, complex) else _SPLIT_NORMS.get(float(p))
    if which is None or call.given.get("dtype") not in (None, result) or not x.is_floating_point():
        return None
    of, kernel = NAMES.get(x.dtype, ""), f"norm_{which}"
    if which in ("inf", "neginf"):
        return reduced(call, Op(kernel, kernel, (of, of), of), x, result, x.dtype)
    joins = "norm_l2_combine" if which == "l2" else "sum"
    types, number = (of, NAMES.get(result, "")), 2.0 if which == "l2" else 0.0
    return reduced(call, Op(kernel, joins, types, "float", number), x, result, torch.float32)


def _norm(call: Call) -> Work | None:
    if call.release == SPLIT:
        return _split_norm(call)
    x = call.given["self"]
    p: Any = call.given.get("p", call.given.get("ord"))
    p = 2.0 if p is None else p
    result = _REAL.get(x.dtype, x.dtype)
    if call.release != READ or call.foreign or call.given.get("dtype") not in (None, result) or isinstance(p, complex):
        return None
    if not x.dim() or not x.numel() or x.is_conj() or x.is_neg() or not (x.is_floating_point() or x.is_complex()):
        return None
    found = result_without(call, x, named_dims(call, x), result)
    if found is None:
        return None
    out, kept = found
    return Work((out,), (_norm_launch(x, kept, float(p)),))


def _place(call: Call, kernel: str) -> Work | None:
    x, asked = call.given["self"], call.given.get("dim")
    if call.foreign or not x.dim() or not x.numel() or x.is_conj() or x.is_neg() or x.is_complex():
        return None
    found = result_without(call, x, named_dims(call, x), torch.int64)
    if found is None:
        return None
    (out, kept), dim, of = found, (asked or 0) % x.dim(), of_numbers(x.dtype)
    if asked is None:
        x, kept = x.contiguous().view(-1), kept.view(1)
    launch = _place_launch(f"{kernel}_reduction", of, x, kept, dim, asked is not None)
    return Work((out,), (launch,), kept=launch.buffers[0] is call.given["self"] and asked is not None)


def _place_launch(kernel: str, of: str, x: torch.Tensor, out: torch.Tensor, dim: int, named: bool) -> Launch:
    """`out` has the dimensions of `x`, of size 1 where one goes."""
    whole = named and x.is_contiguous() and x.dim() >= 2
    along = "_outer" if whole and dim == 0 else "_inner" if whole and dim == x.dim() - 1 else ""
    name = f"{kernel}{along}_{of}_long"
    if along == "_outer":
        columns = x.numel() // x.shape[0]
        threads = (-(-columns // _TILE) * _TILE, _TILE, 1)
        return Launch(name, (x, out, [x.shape[0], columns, 1]), threads, (_TILE, _TILE, 1))
    if along == "_inner":
        rows = x.numel() // x.shape[-1]
        groups = -(-rows // (_ROWS_GROUP // _LANES))
        return Launch(name, (x, out, [rows, x.shape[-1]]), (groups * _ROWS_GROUP,), (_ROWS_GROUP,))
    params = reduction_params(x.shape[dim], 0.0, (x.shape, x.stride()), (out.shape, out.stride()))
    width = min(_MOST, -(-x.shape[dim] // _LANES) * _LANES)
    return Launch(name, (x, out, params), (out.numel() * width,), (width,))


def _renorm(call: Call) -> Work | None:
    x, of = call.given["self"], NAMES.get(call.given["self"].dtype)
    if not call.is_read or call.foreign or x.dim() < 2 or not x.numel() or not x.is_floating_point():
        return None
    kept = call.given["dim"] % x.dim()
    if x.is_neg():
        return None
    norm = torch.linalg.vector_norm(x, call.given["p"], [at for at in range(x.dim()) if at != kept], keepdim=True)
    out = result_of(call, x.shape, x.dtype, (x,))
    if out is None:
        return None
    factor = torch.empty_like(norm)
    sizes = sizes_of(x.shape)
    strides = [strides_of(one, x.shape) for one in (out, x, factor)]
    launches = (
        Launch(f"renorm_{of}", (norm.contiguous(), factor, float(call.given["maxnorm"])), (norm.numel(),)),
        Launch(f"mul_strided_{of}_{of}", (out, x, factor, sizes, *strides, [len(sizes), 0, 0]), (out.numel(),)),
    )
    return Work((out,), launches)


NORMS: dict[str, Describe] = {"norm": _norm, "linalg_vector_norm": _norm, "renorm": _renorm}
PLACED: dict[str, Describe] = {
    "argmax": lambda call: _place(call, "argmax"),
    "argmin": lambda call: _place(call, "argmin"),
}
"""Where extremes stand, as torch 2.13's host does it."""
