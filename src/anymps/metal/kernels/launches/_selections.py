"""Slices that a tensor of indices selects, and to which it adds others, of torch 2.15.

Source: `Indexing.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, at a state with the arguments that
the kernels of torch 2.15's wheel describe. A kernel of its own checks the indices first, a thread each.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import have_numbers, operand_to_write, result_of
from anymps.metal.kernels.launches._types import NAMES

_CHECK_ERRORS = 3
_CROWDED = 16  # so many indices a slice, and halves are added up in float32
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_INDICES = {torch.int64: "long", torch.int32: "int"}
_WIDEST = 8  # bytes that a thread copies


def _line(index: torch.Tensor) -> torch.Tensor | None:
    """The indices as one dimension; None for those that no kernel takes."""
    if index.dim() > 1 or index.dtype not in _INDICES:
        return None
    return index.view(1) if index.dim() == 0 else index


def _check(index: torch.Tensor, size: int) -> Launch:
    buffers = (index, index.stride(0), size)
    return Launch(f"index_check_bounds_{_INDICES[index.dtype]}", buffers, (index.numel(),), errors=_CHECK_ERRORS)


def _params(dim: int, index: torch.Tensor, of: torch.Tensor, walked: torch.Tensor) -> dict[str, Any]:
    """`walked` is the tensor of which each element has a thread."""
    params: dict[str, Any] = {"ndim": walked.dim(), "reduce_dim": dim, "index_stride": index.stride(0)}
    for word, one in (("self", of), ("source", walked)):
        params |= {f"{word}_strides": one.stride(), f"{word}_sizes": list(one.shape)}
    return params


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return isinstance(call.given["dim"], int) and not call.foreign and have_numbers(tensors)


def _bytes_at_once(x: torch.Tensor, out: torch.Tensor, row: int) -> int:
    """The most bytes, up to eight, that divide a slice and where both tensors begin."""
    size, least = _WIDEST, x.element_size()
    starts = (row, x.storage_offset() * least, out.storage_offset() * least)
    while size > least and any(one % size for one in starts):
        size //= 2
    return size


def _select(call: Call) -> Work | None:
    x, index = call.given["self"], _line(call.given["index"])
    if index is None or not x.dim() or not _is_plain(call, x, index) or x.dtype not in NAMES:
        return None
    dim, count = call.given["dim"] % x.dim(), index.numel()
    out = result_of(call, (*x.shape[:dim], count, *x.shape[dim + 1 :]), x.dtype)
    if out is None:
        return None
    check, to = _check(index, x.shape[dim]), _INDICES[index.dtype]
    if check.kernel not in call.kernels:
        return None
    if not all(one.is_contiguous() for one in (x, out, index)):
        name = call.first([f"index_select_dim_{8 * x.element_size()}bit_{to}"])
        buffers: tuple[Any, ...] = (out, index, x, _params(dim, index, x, out))
        grid: tuple[int, ...] = (out.numel(),)
    else:
        row = math.prod(x.shape[dim + 1 :]) * x.element_size()
        size = _bytes_at_once(x, out, row)
        inner = row // size
        name = call.first([f"index_select_dim_dense_{8 * size}bit_{to}"])
        params = {"inner": inner, "in_dim_size": x.shape[dim], "out_dim_size": count, "index_stride": index.stride(0)}
        buffers, grid = (out, index, x, params), (inner, count, math.prod(x.shape[:dim]))
    return None if name is None else Work((out,), (check, Launch(name, buffers, grid)))


def _add(call: Call) -> Work | None:
    x, source = call.given["self"], call.given["source"]
    index = _line(call.given["index"])
    if index is None or not _is_plain(call, x, source, index) or source.dtype != x.dtype or source.dim() != x.dim():
        return None
    if torch.are_deterministic_algorithms_enabled():
        return None  # the host adds by `index_put_`
    out = operand_to_write(call, x)
    alpha = call.given["alpha"]
    if out is None or (not out.dim() and out.numel() != 1):
        return None
    into, source = (one.view(1) if one.dim() == 0 else one for one in (out, source))
    dim = call.given["dim"] % into.dim()
    if index.numel() != source.shape[dim] or any(
        one != other for at, (one, other) in enumerate(zip(into.shape, source.shape, strict=True)) if at != dim
    ):
        return None
    dtype = into.dtype
    crowded = index.numel() // into.shape[dim] >= _CROWDED and dtype in _WIDER
    if crowded:
        dtype = _WIDER[dtype]
        added, source = into.to(dtype), source.to(dtype)
    else:
        added = into
    if not (dtype.is_floating_point or dtype.is_complex) and not isinstance(alpha, (bool, int)):
        return None
    check = _check(index, into.shape[dim])
    name = call.first([f"index_add_{NAMES.get(dtype)}_{_INDICES[index.dtype]}"])
    if name is None or check.kernel not in call.kernels:
        return None
    number = complex(alpha) if dtype.is_complex else alpha
    buffers = (added, index, source, _params(dim, index, added, source), number)
    launches = (check, Launch(name, buffers, (source.numel(),)))
    return Work((out,), launches, copies=((into, added),) if crowded else ())


SELECTIONS: dict[str, Describe] = {"index_select": _select, "index_add": _add}
