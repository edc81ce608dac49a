"""Sums, means, counts, extremes and truth over any dimensions, of torch 2.13: four ways, chosen by shape.

Across rows of the first dimension, along the last one, in two passes for a whole tensor of more than 8192 numbers, and
else a group of threads for each result. Source: `reduction_dispatch_mps` of the pytorch tree's
`aten/src/ATen/native/mps/operations/ReduceOps.mm`, at a state with the kernel names that the library of torch 2.13's
wheel holds, and no others; the constants of the wheel's `ATen/native/mps/kernels/ReduceOps.h`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.kernels.launches._elements import result_of
from anymps.kernels.launches._types import NAMES, of_numbers

READ = (2, 13)  # before, sums are MPSGraph's; the host of later releases chooses otherwise
_LANES, _MOST, _CHAINS = 32, 1024, 8  # of a SIMD group; of a group; sums that a thread keeps
_ROWS_GROUP, _TILE, _MOST_GROUPS = 256, 32, 512


@dataclass(frozen=True)
class _Kind:
    """Which kernels: `prefix` for what reads the input, `second` for what takes partial results together."""

    prefix: str
    second: str
    divides: bool = False  # its kernels take a divisor
    partial: str | None = None  # the type of partial results; None is the result's
    strided: bool = False  # a first pass over what is not contiguous


def _sums(prefix: str) -> _Kind:
    return _Kind(prefix, "sum", divides=True, strided=True)


def named_dims(call: Call, x: torch.Tensor) -> list[int]:
    """The dimensions that a reduction is to take together, in order: all of them if the call names none."""
    asked = call.given.get("dim")
    named = [asked] if isinstance(asked, int) else list(asked or ())
    return sorted(one % x.dim() for one in named) if named else list(range(x.dim()))


def result_without(
    call: Call, x: torch.Tensor, dims: Collection[int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The result of a reduction over `dims`, and the same with size 1 where they go; None if it is not contiguous."""
    kept = [1 if at in dims else size for at, size in enumerate(x.shape)]
    shape = kept if call.given.get("keepdim") else [size for at, size in enumerate(x.shape) if at not in dims]
    out = result_of(call, shape, dtype)
    return None if out is None or not out.is_contiguous() else (out, out.view(kept))


def summed_dtype(call: Call, mean: bool) -> torch.dtype | None:
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


def _passes(kind: _Kind, x: torch.Tensor, out: torch.Tensor, types: tuple[str, str], divisor: float) -> list[Launch]:
    """A whole tensor: slices of it to partial results, and these to one. Nothing if it cannot be cut evenly."""
    groups = min(_MOST_GROUPS, -(-x.numel() // (_MOST * _CHAINS)))
    while groups > 1 and x.numel() % groups:
        groups -= 1
    if groups == 1:
        return []
    strided = kind.strided and not x.is_contiguous()
    each, partial = x.numel() // groups, kind.partial or types[1]
    partials = torch.empty(groups, dtype=torch.uint8 if kind.partial else out.dtype, device="cpu")
    if strided:
        first = reduction_params(each, 0.0, (x.shape, x.stride()), ((), ()))
    else:
        x = x.contiguous()
        first = reduction_params(each, 0.0, ((groups, each), (each, 1)), ((groups,), (1,)))
    second = reduction_params(groups, divisor, ((groups,), (1,)), ((1,), (0,)))
    name = f"{kind.prefix}_reduction{'_strided' * strided}_{types[0]}_{partial}"
    width, last = _group(each), _group(groups)
    return [
        Launch(name, (x, partials, first), (groups * width,), (width,)),
        Launch(f"{kind.second}_reduction_{partial}_{types[1]}", (partials, out, second), (last,), (last,)),
    ]


def _launches(kind: _Kind, x: torch.Tensor, out: torch.Tensor, types: tuple[str, str], divisor: float) -> list[Launch]:
    """`out` has the dimensions of `x`, of size 1 where they go."""
    which, more = "_".join(types), (divisor,) if kind.divides else ()
    gone = [at for at in range(x.dim()) if x.shape[at] != out.shape[at]]
    if out.numel() > 1 and x.is_contiguous() and len(gone) == 1:
        if gone == [0] and x.dim() >= 2:
            columns = x.numel() // x.shape[0]
            buffers = (x, out, [x.shape[0], columns, 1], *more)
            threads = (-(-columns // _TILE) * _TILE, _TILE)
            return [Launch(f"{kind.prefix}_reduction_outer_{which}", buffers, threads, (_TILE, _TILE))]
        if gone == [x.dim() - 1]:
            rows = x.numel() // x.shape[-1]
            groups = -(-rows // (_ROWS_GROUP // _LANES))
            buffers = (x, out, [rows, x.shape[-1]], *more)
            return [Launch(f"{kind.prefix}_reduction_inner_{which}", buffers, (groups * _ROWS_GROUP,), (_ROWS_GROUP,))]
    if out.numel() == 1 and x.numel() > _MOST * _CHAINS:
        launches = _passes(kind, x, out, types, divisor)
        if launches:
            return launches
    numbers = x.numel() // out.numel()
    params = reduction_params(numbers, divisor, (x.shape, x.stride()), (out.shape, out.stride()))
    width = _group(numbers)
    return [Launch(f"{kind.prefix}_reduction_{which}", (x, out, params), (out.numel() * width,), (width,))]


def _reduce(call: Call, kind: _Kind, x: torch.Tensor, result: torch.dtype, mean: bool = False) -> Work | None:
    if call.foreign or not x.numel() or not x.dim() or x.is_conj() or x.is_neg():
        return None
    found = result_without(call, x, named_dims(call, x), result)
    if found is None:
        return None
    out, kept = found
    types = (_type(x.dtype, kind), "uchar" if kind.partial else _type(result, kind))
    divisor = float(x.numel() // out.numel()) if mean else 0.0
    launches = _launches(kind, x, kept, types, divisor)
    made = tuple(Made(one.buffers[1], "room") for one in launches[:-1])
    return Work((out,), tuple(launches), kept=x is call.given["self"] and x.is_contiguous(), made=made)


def _type(dtype: torch.dtype, kind: _Kind) -> str:
    """The name of a dtype in a kernel's."""
    return of_numbers(dtype) if kind.prefix in ("max", "min") else NAMES.get(dtype, "")


def _sum(call: Call, prefix: str = "sum", mean: bool = False) -> Work | None:
    result = summed_dtype(call, mean)
    if result is None:
        return None
    real = result.is_floating_point or result.is_complex
    return _reduce(call, _sums(prefix if real else "sum"), call.given["self"].to(result), result, mean)


def _count(call: Call) -> Work | None:
    return _reduce(call, _sums("count_nonzero"), call.given["self"], torch.int64)


def _extreme(call: Call, prefix: str) -> Work | None:
    x = call.given["self"]
    return _reduce(call, _Kind(prefix, prefix), x, x.dtype)


def _truth(call: Call, prefix: str) -> Work | None:
    x = call.given["self"]
    if call.given.get("dim") == []:
        return None  # each number by itself
    kind = _Kind(prefix, {"any": "max", "all": "min"}[prefix], partial="uchar")
    return _reduce(call, kind, x, torch.uint8 if x.dtype == torch.uint8 else torch.bool)


REDUCTIONS: dict[str, Describe] = {
    "sum": _sum,
    "nansum": lambda call: _sum(call, "nansum"),
    "mean": lambda call: _sum(call, mean=True),
    "count_nonzero": _count,
    "amax": lambda call: _extreme(call, "max"),
    "amin": lambda call: _extreme(call, "min"),
    "any": lambda call: _truth(call, "any"),
    "all": lambda call: _truth(call, "all"),
}
"""For `READ` alone."""
