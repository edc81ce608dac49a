"""Sums, means and extremes over any dimensions, of torch 2.13: four ways, chosen by shape.

Across rows of the first dimension, along the last one, in two passes for a whole tensor of more than 8192 numbers, and
else a group of threads for each result. Source: `reduction_dispatch_mps` of the pytorch tree's
`aten/src/ATen/native/mps/operations/ReduceOps.mm`, at a state with the kernel names that the library of torch 2.13's
wheel holds, and no others; the constants of the wheel's `ATen/native/mps/kernels/ReduceOps.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, result_of

READ = (2, 13)  # before, sums are MPSGraph's; the host of later releases chooses otherwise
_LANES, _MOST, _CHAINS = 32, 1024, 8  # of a SIMD group; of a group; sums that a thread keeps
_ROWS_GROUP, _TILE, _MOST_GROUPS = 256, 32, 512
_SUMS = ("sum", "nansum")  # their kernels divide, and read in a first pass what is not contiguous


def named_dims(call: KernelCall, x: torch.Tensor) -> list[int]:
    """The dimensions that a reduction is to take together, in order: all of them if the call names none."""
    asked = call.given.get("dim")
    named = [asked] if isinstance(asked, int) else list(asked or ())
    return sorted(one % x.dim() for one in named) if named else list(range(x.dim()))


def result_without(call: KernelCall, x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The result of a reduction, and the same with size 1 where dimensions go; None for a call that no kernel does."""
    if call.foreign or not x.numel() or not x.dim() or x.is_conj() or x.is_neg():
        return None
    dims = named_dims(call, x)
    kept = [1 if at in dims else size for at, size in enumerate(x.shape)]
    shape = kept if call.given.get("keepdim") else [size for at, size in enumerate(x.shape) if at not in dims]
    out = result_of(call, shape, dtype)
    return None if out is None or not out.is_contiguous() else (out, out.view(kept))


def summed_dtype(call: KernelCall, mean: bool) -> torch.dtype | None:
    """The dtype of a sum or a mean, to which the host casts what it reads first; None for a mean of whole numbers."""
    x = call.given["self"]
    whole = not x.dtype.is_floating_point and not x.dtype.is_complex
    asked: torch.dtype | None = call.given.get("dtype") or (call.written[0].dtype if call.written else None)
    result: torch.dtype = asked or (torch.int64 if whole and not mean else x.dtype)
    return None if mean and not (result.is_floating_point or result.is_complex) else result


def _group(numbers: int) -> int:
    """Threads of a group for so many numbers: whole SIMD groups."""
    return min(_MOST, -(-numbers // _LANES) * _LANES)


def reduction_params(
    numbers: int, divisor: float, x: tuple[Sequence[int], ...], out: tuple[Sequence[int], ...]
) -> dict[str, Any]:
    """The struct that these kernels and those of norms take: sizes and strides of what they read and write."""
    (sizes, strides), (out_sizes, out_strides) = x, out
    return {
        "p": divisor,
        "reduction_size": numbers,
        "ndim": len(sizes),
        "input_sizes": list(sizes),
        "input_strides": list(strides),
        "output_sizes": list(out_sizes),
        "output_strides": list(out_strides),
    }


def _passes(call: KernelCall, kernel: str, of: str, x: torch.Tensor, out: torch.Tensor, divisor: float) -> list[Launch]:
    """A whole tensor: slices of it to partial results, and these to one. Nothing if it cannot be cut evenly."""
    groups = min(_MOST_GROUPS, -(-x.numel() // (_MOST * _CHAINS)))
    while groups > 1 and x.numel() % groups:
        groups -= 1
    if groups == 1:
        return []
    sums = kernel in _SUMS
    strided = sums and not x.is_contiguous()
    each, partials = x.numel() // groups, call.empty([groups], out.dtype)
    if strided:
        first = reduction_params(each, 0.0, (x.shape, x.stride()), ((), ()))
    else:
        x = x.contiguous()
        first = reduction_params(each, 0.0, ((groups, each), (each, 1)), ((groups,), (1,)))
    second = reduction_params(groups, divisor, ((groups,), (1,)), ((1,), (0,)))
    width, last = _group(each), _group(groups)
    joins = "sum" if sums else kernel
    return [
        Launch(f"{kernel}_reduction{'_strided' * strided}_{of}", (x, partials, first), (groups * width,), (width,)),
        Launch(f"{joins}_reduction_{of}", (partials, out, second), (last,), (last,)),
    ]


def _launches(
    call: KernelCall, kernel: str, of: str, x: torch.Tensor, out: torch.Tensor, divisor: float
) -> list[Launch]:
    """`out` has the dimensions of `x`, of size 1 where they go; `of` are the types in the kernels' names."""
    more = (divisor,) if kernel in _SUMS else ()
    gone = [at for at in range(x.dim()) if x.shape[at] != out.shape[at]]
    if out.numel() > 1 and x.is_contiguous() and len(gone) == 1:
        if gone == [0] and x.dim() >= 2:
            columns = x.numel() // x.shape[0]
            buffers = (x, out, [x.shape[0], columns, 1], *more)
            threads = (-(-columns // _TILE) * _TILE, _TILE)
            return [Launch(f"{kernel}_reduction_outer_{of}", buffers, threads, (_TILE, _TILE))]
        if gone == [x.dim() - 1]:
            rows = x.numel() // x.shape[-1]
            groups = -(-rows // (_ROWS_GROUP // _LANES))
            buffers = (x, out, [rows, x.shape[-1]], *more)
            return [Launch(f"{kernel}_reduction_inner_{of}", buffers, (groups * _ROWS_GROUP,), (_ROWS_GROUP,))]
    if out.numel() == 1 and x.numel() > _MOST * _CHAINS:
        launches = _passes(call, kernel, of, x, out, divisor)
        if launches:
            return launches
    numbers = x.numel() // out.numel()
    params = reduction_params(numbers, divisor, (x.shape, x.stride()), (out.shape, out.stride()))
    width = _group(numbers)
    return [Launch(f"{kernel}_reduction_{of}", (x, out, params), (out.numel() * width,), (width,))]


def _reduce(call: KernelCall, kernel: str, x: torch.Tensor, mean: bool = False) -> Work | None:
    found = result_without(call, x, x.dtype)
    if found is None:
        return None
    out, kept = found
    as_numbers = kernel not in _SUMS and x.dtype == torch.bool  # extremes of truth values
    name = NAMES.get(torch.int8 if as_numbers else x.dtype, "")
    divisor = float(x.numel() // out.numel()) if mean else 0.0
    launches = _launches(call, kernel, f"{name}_{name}", x, kept, divisor)
    return Work((out,), tuple(launches))


def _sum(call: KernelCall, kernel: str = "sum", mean: bool = False) -> Work | None:
    result = summed_dtype(call, mean)
    if result is None:
        return None
    real = result.is_floating_point or result.is_complex
    return _reduce(call, kernel if real else "sum", call.given["self"].to(result), mean)


OF_2_13: dict[str, Describe] = {
    "sum": _sum,
    "nansum": lambda call: _sum(call, "nansum"),
    "mean": lambda call: _sum(call, mean=True),
    "amax": lambda call: _reduce(call, "max", call.given["self"]),
    "amin": lambda call: _reduce(call, "min", call.given["self"]),
}
"""For `READ` alone."""
