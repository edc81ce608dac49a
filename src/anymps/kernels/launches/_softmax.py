"""`softmax` and `log_softmax`, forward, of torch 2.15.

Source: `aten/src/ATen/native/mps/operations/SoftMax.mm` of the pytorch tree, whose kernels and arguments are those of
torch 2.15's macOS wheel. Rows that are short, or many, take a SIMD group each; few long ones are split; other
dimensions take a group of threads for some columns, and are split where columns are few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import MOST_32, NAMES, result_of

_LANES, _THREADS, _MOST = 32, 256, 1024
_ROW, _ROW_ALONE, _ROWS_MANY = 2048, 1024, 128
"""The longest row for a SIMD group, the longest where rows are few, and how many are many."""
_SPLIT_GROUPS, _SPLIT_CHUNK = 512, 2048
_COLUMN_GROUPS, _COLUMN_NUMBERS = 256, 16
"""Into how many groups of threads columns are split at most, and how many numbers of each thread pay for it."""


@dataclass(frozen=True)
class _Plan:
    """How a tensor goes to the kernels: `parts` of `size` numbers along the dimension; groups of threads."""

    way: str
    parts: int
    size: int
    grid: tuple[int, int, int]
    group: tuple[int, int, int]


def _plan(x: torch.Tensor, dim: int) -> _Plan:
    count, inner = x.shape[dim], math.prod(x.shape[dim + 1 :])
    rows = x.numel() // count
    along = x.is_contiguous() and dim == x.dim() - 1
    parts = min(max(_SPLIT_GROUPS // rows, 1), -(-count // _SPLIT_CHUNK))
    each = -(-count // parts)
    if along and count <= _ROW and (count <= _ROW_ALONE or rows >= _ROWS_MANY):
        grid = (-(-rows // (_THREADS // _LANES)), 1, 1)
        return _Plan("row", parts, each, grid, (_THREADS, 1, 1))
    if along and parts > 1:
        return _Plan("split", parts, each, (parts, rows, 1), (_THREADS, 1, 1))
    wide = min(inner, (2 if x.element_size() == 2 else 1) * _LANES)
    tall = min(1 << (count - 1).bit_length(), _THREADS, 1 << ((_MOST // wide).bit_length() - 1))
    groups = -(-inner // wide) * (rows // inner)
    pieces = max(1, min(_COLUMN_GROUPS // groups, count // (_COLUMN_NUMBERS * tall)))
    grid = (-(-inner // wide), rows // inner, pieces)
    if pieces > 1:
        return _Plan("strided", pieces, -(-count // pieces), grid, (wide, tall, 1))
    return _Plan("", parts, each, grid, (wide, tall, 1))


def _softmax(call: KernelCall, kernel: str) -> Work | None:
    x = call.given["self"]
    if call.foreign or not x.numel() or x.is_neg() or call.given["half_to_float"] or x.dtype not in NAMES:
        return None
    out = result_of(call, x.shape, x.dtype)
    if out is None:
        return None
    if not x.dim():
        x = x.view(1)
    dim = call.given["dim"] % x.dim()
    target = out if out.is_contiguous() else call.empty(out.shape, x.dtype)
    plan, ends = _plan(x, dim), f"_{NAMES[x.dtype]}_{'u32' if x.numel() <= MOST_32 else 'u64'}"
    rows = x.numel() // x.shape[dim]
    params: dict[str, Any] = {
        "dim_size": x.shape[dim],
        "num_rows": rows,
        "inner_size": math.prod(x.shape[dim + 1 :]),
        "chunk_size": plan.size,
        "n_chunks": plan.parts,
        "ndim": x.dim(),
        "dim": dim,
        "sizes": list(x.shape),
        "strides": [0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)],
    }
    if plan.way in ("split", "strided"):
        strided = "strided_" * (plan.way == "strided")
        names = [f"softmax_{strided}partial{ends}", f"{kernel}_{strided}finalize{ends}"]
        partials = call.empty((rows, plan.parts, 2), torch.float32)
        buffers: list[tuple[Any, ...]] = [(x, partials, params), (x, target, partials, params)]
    else:
        names, buffers = [f"{kernel}{'_row' * (plan.way == 'row')}{ends}"], [(x, target, params)]
    threads = tuple(groups * size for groups, size in zip(plan.grid, plan.group, strict=True))
    launches = tuple(Launch(name, given, threads, plan.group) for name, given in zip(names, buffers, strict=True))
    return Work((out,), launches, copies=() if target is out else ((out, target),))


SOFTMAX: dict[str, Describe] = {f"_{kernel}": partial(_softmax, kernel=kernel) for kernel in ("softmax", "log_softmax")}
