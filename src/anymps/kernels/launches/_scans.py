"""Operators that go along a dimension and keep every step: sums and products.

Source: `aten/src/ATen/native/mps/operations/ScanKernel.mm` of the pytorch tree, whose kernels are those of the wheels
of torch 2.13 and 2.15, with the same arguments. A group of threads scans a row, or a column of 32 neighbours.

Of many short rows a group takes several. Long rows and columns, which several groups share, are left to the CPU: how
they are shared depends on the chip, and shows in the last digit.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, result_of

_LANES = 32
_MOST = 1024  # threads of a group
_WIDTH = 32  # neighbours that a group takes where it goes across rows
_GROUP = 256
_TYPES = {torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64}
_LONG_ROW, _MOST_ROWS, _LONG_COLUMN, _MOST_GROUPS = 1 << 16, 1024, 1024, 64
_TINY, _MANY, _TINY_TILE = 32, 4096, 2048
_TRANSPOSED = 256  # columns, from which on a transposed tensor is read where it lies


def _scan(call: KernelCall, kernel: str) -> Work | None:
    """Sums and products; of integers in 64 bits."""
    x = call.given["self"]
    whole = kernel != "logcumsumexp" and not (x.is_floating_point() or x.is_complex())
    result = call.given.get("dtype") or (torch.int64 if whole else x.dtype)
    if result != x.dtype and not (whole and result == torch.int64):
        return None
    if x.dtype != result and not (x.dtype == torch.int32 and kernel == "cumsum"):
        x = x.to(result)
    out = result_of(call, x.shape, result)
    if out is None:
        return None
    if kernel != "logcumsumexp" and _is_plain(call, x, out) and x.dtype in _TYPES:
        dim = call.given["dim"] % x.dim()
        if dim == x.dim() - 1 and (found := _of_many_rows(kernel, x, out)) is not None:
            return Work((out,), (found,))
        if _is_shared(x, dim):
            return None
    wide = out.element_size() > 4  # half precision is summed in float32
    return _launch(call, kernel, x, out, reads=2 if wide else 4)


def _is_plain(call: KernelCall, x: torch.Tensor, out: torch.Tensor) -> bool:
    return bool(x.dim() and x.numel()) and not (call.foreign or x.is_conj() or x.is_neg()) and out.shape == x.shape


def _launch(call: KernelCall, kernel: str, x: torch.Tensor, out: torch.Tensor, reads: int) -> Work | None:
    if not _is_plain(call, x, out) or not x.is_contiguous() or not out.is_contiguous():
        return None
    dim = call.given["dim"] % x.dim()
    inner = dim == x.dim() - 1
    types = "_".join(dict.fromkeys(NAMES.get(one.dtype, "") for one in (x, out)))
    name = f"{kernel}_{'innermost' if inner else 'outer'}_{types}"
    count, before, after = x.shape[dim], math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    if inner:
        width = _row_width(count, reads)
        return Work((out,), (Launch(name, (x, out, count), (width, before, 1), (width, 1, 1)),))
    blocks = -(-after // _WIDTH)
    width = _WIDTH // reads * _LANES
    places = (count, after, blocks)
    return Work((out,), (Launch(name, (x, out, *places), (width, before * blocks, 1), (width, 1, 1)),))


def _row_width(count: int, reads: int) -> int:
    """Threads of the group of a row: each takes `reads` numbers at once, and loops from 2048 times as many on."""
    if count <= reads * _MOST:
        wanted = count
    elif count <= reads * 2 * _MOST:
        wanted = count // 2
    else:
        return _MOST
    return min(-(-wanted // (reads * _LANES)) * _LANES, _MOST)


def _parts(count: int, size: int) -> int:
    return -(-count // size)


def _is_shared(x: torch.Tensor, dim: int) -> bool:
    """Whether several groups take a row, or the same columns, together."""
    count, after = x.shape[dim], math.prod(x.shape[dim + 1 :])
    before = x.numel() // (count * after)
    if after == 1:
        return count >= _LONG_ROW and before <= _MOST_ROWS
    return count >= _LONG_COLUMN and before * _parts(after, _WIDTH) <= _MOST_GROUPS


def _of_many_rows(kernel: str, x: torch.Tensor, out: torch.Tensor) -> Launch | None:
    """The launch in which a group takes several rows along the last dimension, or reads them transposed; else None."""
    count = x.shape[-1]
    rows = x.numel() // count
    types = NAMES[x.dtype] if x.dtype == out.dtype else f"{NAMES[x.dtype]}_{NAMES[out.dtype]}"
    if _is_transposed(x) and out.is_contiguous():
        reads = 4 if out.element_size() <= 4 else 2
        blocks, width = _parts(rows, _WIDTH), _WIDTH // reads * _LANES
        name = f"{kernel}_innermost_transposed_{types}"
        return Launch(name, (x, out, count, rows, blocks), (width, blocks, 1), (width, 1, 1))
    if not x.is_contiguous() or not out.is_contiguous() or count > _TINY or rows < _MANY:
        return None
    each = _TINY_TILE // count
    name = f"{kernel}_tiny_innermost_{types}"
    return Launch(name, (x, out, count, rows, each), (_GROUP * _parts(rows, each),), (_GROUP,))


def _is_transposed(x: torch.Tensor) -> bool:
    """Whether the last dimension is the outermost one in memory, of so many columns that the host takes it as it is."""
    if x.dim() < 2 or x.is_contiguous() or x.numel() // x.shape[-1] < _TRANSPOSED:
        return False
    return x.movedim(-1, 0).is_contiguous()


SCANS: dict[str, Describe] = {
    **{name: partial(_scan, kernel=name) for name in ("cumsum", "cumprod", "logcumsumexp")},
    "_logcumsumexp": partial(_scan, kernel="logcumsumexp"),
}
