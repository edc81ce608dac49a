"""Triangles of matrices, and matrices with ones on the diagonal.

Source: `Eye.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, and for triangles the arguments that the
kernels of torch 2.13's wheel describe: a thread an element, by column, row and matrix; sizes come innermost first.
"""

from __future__ import annotations

import math

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import result_of, sizes_of
from anymps.metal.kernels.launches._types import MOST_32, NAMES

_ONE_PASS = 1 << 22  # elements of a matrix that one kernel writes, zeros and ones


def _triangle(call: Call, which: str) -> Work | None:
    x, diagonal = call.given["self"], call.given["diagonal"]
    if not call.is_read or call.foreign or x.dim() < 2 or not 0 < x.numel() <= MOST_32:
        return None
    if x.is_conj() or x.is_neg() or abs(diagonal) > MOST_32:
        return None
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu") if not call.written else call.written[0]
    if out.shape != x.shape or out.dtype != x.dtype:
        return None
    of = NAMES.get(x.dtype)
    name = call.first([f"{which}_inplace_int_{of}" if out is x else f"{which}_int_{of}"])
    if name is None:
        return None
    given = (out,) if out is x else (out, x)
    strides = [list(reversed(one.stride())) for one in given]
    buffers = (*given, *strides, sizes_of(x.shape), [diagonal, x.dim()])
    rows, columns = x.shape[-2:]
    return Work((out,), (Launch(name, buffers, (columns, rows, math.prod(x.shape[:-2]))),), kept=True)


def _eye(call: Call) -> Work | None:
    rows = call.given["n"]
    columns = call.given.get("m", rows)
    if not call.is_read or not call.written or rows <= 0 or columns <= 0:
        return None
    out = result_of(call, (rows, columns), call.written[0].dtype)
    if out is None:
        return None
    of = NAMES.get(out.dtype)
    first, second = out.stride()
    if rows * columns > _ONE_PASS:
        name = call.first([f"eye_diag_{of}"])
        if name is None:
            return None
        out.zero_()
        return Work((out,), (Launch(name, (out, first + second), (min(rows, columns),)),))
    name = call.first([f"eye_{of}"])
    if name is None:
        return None
    turned = first < second  # threads go along the smaller stride
    grid = (rows, columns) if turned else (columns, rows)
    return Work((out,), (Launch(name, (out, max(first, second), min(first, second)), grid),))


TRIANGLES: dict[str, Describe] = {
    "tril": lambda call: _triangle(call, "tril"),
    "triu": lambda call: _triangle(call, "triu"),
    "eye": _eye,
}
