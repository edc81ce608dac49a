"""Fills: with a number, with a number where a mask says so, and outside of a triangle or a diagonal.

Source: `fill_mps_kernel` of `aten/src/ATen/native/mps/operations/ConstantOps.mm` and `masked_fill__mps` of
`Indexing.mm` in the pytorch tree, at states with the arguments that the kernels of torch 2.13's wheel describe. A dense
tensor is filled with zero, or with a byte, by a blit command, which no kernel of the wheel does.

Source: `Eye.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, and for triangles the arguments that the
kernels of torch 2.13's wheel describe: a thread an element, by column, row and matrix; sizes come innermost first.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import is_dense, result_of, sizes_of, strides_of
from anymps.metal.kernels.launches._types import MOST_32, NAMES

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MOST = 1024  # threads of a group
_ONE_PASS = 1 << 22  # elements of a matrix that one kernel writes, zeros and ones


def _number(value: Any, dtype: torch.dtype) -> torch.Tensor | None:
    """The number in that dtype; None for one that it cannot hold."""
    if not isinstance(value, (bool, int, float, complex)):
        return None
    try:
        return torch.full((1,), value, dtype=dtype, device="cpu")
    except RuntimeError:
        return None


def _fill(call: Call) -> Work | None:
    x = call.given["self"]
    number = _number(call.given["value"], x.dtype)
    if not call.is_read or call.foreign or number is None or not x.numel() or x.is_conj() or x.is_neg():
        return None
    if not call.written:
        x = torch.empty_like(x)
    elif call.written[0] is not x:
        return None
    dense, size = is_dense(x), x.element_size()
    if dense and (size == 1 or not bool(number)):
        return None
    name = f"fill_scalar_{'dense' if dense else 'strided'}_{NAMES.get(x.dtype)}"
    value = number.item()
    if dense:
        return Work((x,), (Launch(name, (x, value, x.numel()), (x.numel(),)),), kept=True)
    sizes, strides = sizes_of(x.shape), strides_of(x, x.shape)
    inner = x.numel() // sizes[0]
    launch = Launch(name, (x, value, sizes, strides, len(sizes)), (inner, sizes[0]), (min(inner, _MOST), 1))
    return Work((x,), (launch,), kept=True)


def _repeats(mask: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether the mask is the last dimensions of the tensor, over and over."""
    if not (mask.is_contiguous() and x.is_contiguous()):
        return False
    shape = list(mask.shape)
    while shape and shape[0] == 1:
        del shape[0]
    return list(x.shape[x.dim() - len(shape) :]) == shape


def _fits(mask: torch.Tensor, x: torch.Tensor, grows: bool) -> bool:
    """Whether the mask can be broadcast to the tensor, or, if that grows, both to one shape."""
    if mask.dim() > x.dim() and not grows:
        return False
    sizes = zip(reversed(mask.shape), reversed(x.shape), strict=False)
    return all(of_mask in (1, of_x) or (grows and of_x == 1) for of_mask, of_x in sizes)


def _masked_fill(call: Call) -> Work | None:
    x, mask = call.given["self"], call.given["mask"]
    number = _number(call.given["value"], x.dtype)
    if not call.is_read or call.foreign or mask.dtype != torch.bool or number is None or x.element_size() not in _BITS:
        return None
    if not x.numel() or not mask.numel() or x.is_conj() or x.is_neg():
        return None
    if not _fits(mask, x, grows=not call.written):
        return None
    if not call.written:
        shape = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]
        x = x.expand(shape).clone(memory_format=torch.contiguous_format)
    elif call.written[0] is not x:
        return None
    expanded = mask.expand(x.shape)
    dense = x.is_contiguous() and expanded.is_contiguous()
    flavor = "dense" if dense else "broadcast" if _repeats(mask, x) else "strided"
    name = f"masked_fill_scalar_{flavor}_{8 * x.element_size()}bit"
    further: tuple[Any, ...] = ()
    if flavor == "broadcast":
        further = (mask.numel(),)
    elif flavor == "strided":
        further = (list(x.shape), list(x.stride()), list(expanded.stride()), x.dim())
    buffers = (x, expanded if flavor != "broadcast" else mask, number.view(_BITS[x.element_size()]).item(), *further)
    return Work((x,), (Launch(name, buffers, (math.prod(x.shape),)),), kept=bool(call.written))


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
    name = f"{which}_inplace_int_{of}" if out is x else f"{which}_int_{of}"
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
        name = f"eye_diag_{of}"
        out.zero_()
        return Work((out,), (Launch(name, (out, first + second), (min(rows, columns),)),))
    name = f"eye_{of}"
    turned = first < second  # threads go along the smaller stride
    grid = (rows, columns) if turned else (columns, rows)
    return Work((out,), (Launch(name, (out, max(first, second), min(first, second)), grid),))


FILLS: dict[str, Describe] = {
    "fill": _fill,
    "masked_fill": _masked_fill,
    "tril": lambda call: _triangle(call, "tril"),
    "triu": lambda call: _triangle(call, "triu"),
    "eye": _eye,
}
