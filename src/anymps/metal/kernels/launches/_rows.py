"""Operators over the last dimensions: extremes, truth and counts, which no order changes, and norms of layers.

Source: the arguments that the kernels of torch 2.13's wheel describe, and `ATen/native/mps/kernels/ReduceOps.h`: a SIMD
group reduces a row. Sums are left out: which of their kernels the host takes hangs on the shape, and the order of
the sum on that. A norm of up to 4096 numbers has a group of threads for each row, four numbers a thread.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES

_LANES = 32  # of a SIMD group
_GROUP = 256
_LONGEST = 4096  # numbers of a row that one pass takes
_A_THREAD = 4
_EXTREMES = {"amax": "max", "amin": "min", "argmax": "argmax", "argmin": "argmin"}


def _dimensions(call: Call, x: torch.Tensor) -> list[int] | None:
    """The dimensions that go, in order; None if they are not the last ones."""
    asked = call.given.get("dim")
    named = [asked] if isinstance(asked, int) else list(asked or ())
    dims = sorted(one % x.dim() for one in named) if named else list(range(x.dim()))
    return dims if dims == list(range(x.dim() - len(dims), x.dim())) and x.dim() else None


def _reduce(call: Call, kernel: str, result: torch.dtype | None) -> Work | None:
    x = call.given["self"]
    dims = _dimensions(call, x)
    if dims is None or not x.is_contiguous() or not x.numel() or x.is_conj() or x.is_neg():
        return None
    kept = list(x.shape[: x.dim() - len(dims)])
    shape = kept + [1] * len(dims) if call.given.get("keepdim") else kept
    out = call.written[0] if call.written else torch.empty(shape, dtype=result or x.dtype, device="cpu")
    if out.dtype != (result or x.dtype) or list(out.shape) != shape or not out.is_contiguous():
        return None
    of = "uchar" if out.dtype == torch.bool else NAMES.get(out.dtype)  # truth values are bytes
    name = call.first([f"{kernel}_reduction_inner_{NAMES.get(x.dtype)}_{of}"])
    if name is None:
        return None
    rows, columns = out.numel(), x.numel() // out.numel()
    more = (0.0,) if kernel == "count_nonzero" else ()
    return Work((out,), (Launch(name, (x, out, [rows, columns], *more), (rows * _LANES,), (_GROUP,)),))


def _layer_norm(call: Call) -> Work | None:
    x, weight, bias = (call.given[name] for name in ("input", "weight", "bias"))
    shape: Sequence[int] = call.given["normalized_shape"]
    columns = functools.reduce(lambda a, b: a * b, shape, 1)
    named = [one for one in (weight, bias) if one is not None]
    if call.written or call.foreign or not x.is_contiguous() or not x.numel() or not 0 < columns <= _LONGEST:
        return None
    if any(one.dtype != x.dtype or not one.is_contiguous() for one in named):
        return None
    name = call.first([f"layer_norm_single_row_{NAMES.get(x.dtype)}"])
    if name is None:
        return None
    rows = x.numel() // columns
    kept = list(x.shape[: x.dim() - len(shape)]) + [1] * len(shape)
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    mean, deviation = (torch.empty(kept, dtype=x.dtype, device="cpu") for _ in range(2))
    width = -(-columns // (_A_THREAD * _LANES)) * _LANES
    numbers = (columns, call.given["eps"], int(weight is not None), int(bias is not None))
    buffers = (x, out, mean, deviation, *numbers, weight, bias)
    return Work((out, mean, deviation), (Launch(name, buffers, (rows * width,), (width,)),))


def _extreme(kernel: str, result: torch.dtype | None = None) -> Describe:
    return lambda call: _reduce(call, kernel, result)


ROWS: dict[str, Describe] = {
    **{name: _extreme(kernel, torch.int64 if "arg" in name else None) for name, kernel in _EXTREMES.items()},
    **{name: _extreme(name, torch.bool) for name in ("any", "all")},
    "count_nonzero": _extreme("count_nonzero", torch.int64),
    "native_layer_norm": _layer_norm,
}
