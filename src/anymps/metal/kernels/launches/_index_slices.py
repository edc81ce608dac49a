"""Slices along a dimension that a tensor of indices names: copied, filled, added to, selected, reduced.

Source: `Indexing.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, at a state with the arguments that
the kernels of torch 2.13's wheel describe, or, for `index_select` and `index_add`, those of torch 2.15's: there a
kernel of its own checks the indices first, a thread each.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import have_numbers, operand_to_write, result_of
from anymps.metal.kernels.launches._types import MOST_32, NAMES

_RARE = 16  # from one index in so many places on, a mask is filled first
_INDICES = (torch.int64, torch.int32)
_CHECK_ERRORS = 3
_CROWDED = 16  # so many indices a slice, and halves are added up in float32
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_INDEX_NAMES = {torch.int64: "long", torch.int32: "int"}
_WIDEST = 8  # bytes that a thread copies


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return call.is_read and not call.foreign and have_numbers(tensors)


def _others(values: Any, dim: int) -> list[int]:
    """Sizes or strides without those of the dimension."""
    return [value for at, value in enumerate(values) if at != dim]


def _copy(call: Call) -> Work | None:
    x, index, source = (call.given[name] for name in ("self", "index", "source"))
    if not x.dim() or not _is_plain(call, x, index, source) or source.dtype != x.dtype or source.dim() != x.dim():
        return None
    dim = call.given["dim"] % x.dim()
    if index.dim() > 1 or index.dtype not in _INDICES or index.numel() != source.shape[dim]:
        return None
    if _others(x.shape, dim) != _others(source.shape, dim):
        return None
    out = operand_to_write(call, x)
    if out is None:
        return None
    dense = all(one.is_contiguous() for one in (out, source, index))
    small = all(one.numel() <= MOST_32 for one in (out, source, index))
    types = f"{NAMES.get(x.dtype)}_{NAMES[index.dtype]}"
    name = f"index_copy_{'dense' if dense else 'strided'}_{types}_{32 if small else 64}"
    count = index.numel()
    each = source.numel() // count
    if dense:
        inner = math.prod(x.shape[dim + 1 :])
        buffers = (out, source, index, x.shape[dim], inner, count)
        return Work((out,), (Launch(name, buffers, (inner, count, each // inner)),))
    sizes, to, of = (_others(one, dim) or [0] for one in (out.shape, out.stride(), source.stride()))
    steps = (out.stride(dim), source.stride(dim))
    buffers = (
        out,
        source,
        index,
        out.shape[dim],
        *steps,
        sizes,
        to,
        of,
        out.dim() - 1,
        each,
        *(index.stride() or (1,)),
    )
    return Work((out,), (Launch(name, buffers, (source.numel(),)),))


def _filled(out: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> list[Launch]:
    """The launches that fill slices with a number; None if the release lacks a kernel."""
    dense = out.is_contiguous() and index.is_contiguous()
    layout, of = "dense" if dense else "strided", NAMES.get(out.dtype)
    size, count, step = out.shape[dim], index.numel(), index.stride(0)
    if count * _RARE >= size:
        name = f"index_fill_{layout}_from_mask_{of}"
        mask = torch.empty(size, dtype=torch.bool, device="cpu")
        before = [
            Launch("index_fill_zero_mask", (mask,), (size,)),
            Launch("index_fill_set_mask", (mask, index, size, step), (count,)),
        ]
        if dense:
            inner = math.prod(out.shape[dim + 1 :])
            outer = out.numel() // (size * inner)
            return [*before, Launch(name, (out, mask, value, size, inner), (inner, size, outer))]
        buffers = (out, mask, value, list(out.shape), out.stride(), dim, out.dim())
        return [*before, Launch(name, buffers, (out.numel(),))]
    name = f"index_fill_{layout}_{of}"
    each = out.numel() // size
    if dense:
        return [Launch(name, (out, index, value, size, out.stride(dim), each), (count * each,))]
    sizes, strides = (_others(one, dim) or [0] for one in (out.shape, out.stride()))
    more = (size, out.stride(dim), sizes, strides, out.dim() - 1, each, step)
    return [Launch(name, (out, index, value, *more), (count * each,))]


def _number(value: Any, dtype: torch.dtype) -> Any:
    """The number as that dtype holds it; None for one that it cannot hold."""
    if not isinstance(value, (bool, int, float, complex)):
        return None
    try:
        return torch.full((1,), value, dtype=dtype, device="cpu").item()
    except RuntimeError:
        return None


def _fill(call: Call) -> Work | None:
    x, index = call.given["self"], call.given["index"]
    value = _number(call.given["value"], x.dtype)
    if value is None or not x.dim() or not _is_plain(call, x, index):
        return None
    if index.dim() != 1 or index.dtype != torch.int64:
        return None
    out = operand_to_write(call, x)
    if out is None:
        return None
    return Work((out,), tuple(_filled(out, call.given["dim"] % x.dim(), index, value)))


def _first_of(reduce: str, dtype: torch.dtype) -> Any:
    """What a slice begins with where it does not count itself."""
    if reduce in ("prod", "mean"):
        return int(reduce == "prod")
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def _divided(call: Call, out: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Launch:
    """The division of sums by how many numbers each has."""
    own = torch.ones if call.given["include_self"] else torch.zeros
    counts = own(out.shape, dtype=out.dtype, device="cpu").index_add_(dim, index, torch.ones_like(source))
    counts.masked_fill_(counts == 0, 1)
    of = NAMES.get(out.dtype)
    name = f"div_{'true' if out.is_floating_point() else 'floor'}_dense_{of}_{of}"
    return Launch(name, (out, out, counts), (out.numel(),))


def _reduce(call: Call) -> Work | None:
    x, index, source, reduce = (call.given[name] for name in ("self", "index", "source", "reduce"))
    if not x.dim() or x.dtype == torch.int64 or x.is_complex() or not _is_plain(call, x, index, source):
        return None
    dim = call.given["dim"] % x.dim()
    if index.dim() != 1 or index.dtype not in _INDICES or source.dtype != x.dtype or source.dim() != x.dim():
        return None
    if index.numel() != source.shape[dim] or _others(x.shape, dim) != _others(source.shape, dim):
        return None
    name = f"index_reduce_{reduce}_{NAMES.get(x.dtype)}_{NAMES[index.dtype]}"
    out = operand_to_write(call, x) if name in call.kernels else None
    if out is None:
        return None
    params = {"ndim": out.dim(), "reduce_dim": dim, "index_stride": index.stride(0)}
    for word, one in (("self", out), ("source", source)):
        params |= {f"{word}_strides": one.stride(), f"{word}_sizes": list(one.shape)}
    launches = [Launch(name, (out, index, source, params), (source.numel(),))]
    if not call.given["include_self"]:
        launches[:0] = _filled(out, dim, index.long(), _first_of(reduce, x.dtype))
    if reduce == "mean":
        if not out.is_contiguous():
            return None
        launches.append(_divided(call, out, dim, index, source))
    return Work((out,), tuple(launches))


def _line(index: torch.Tensor) -> torch.Tensor | None:
    """The indices as one dimension; None for those that no kernel takes."""
    if index.dim() > 1 or index.dtype not in _INDEX_NAMES:
        return None
    return index.view(1) if index.dim() == 0 else index


def _check(index: torch.Tensor, size: int) -> Launch:
    buffers = (index, index.stride(0), size)
    return Launch(f"index_check_bounds_{_INDEX_NAMES[index.dtype]}", buffers, (index.numel(),), errors=_CHECK_ERRORS)


def _params(dim: int, index: torch.Tensor, of: torch.Tensor, walked: torch.Tensor) -> dict[str, Any]:
    """`walked` is the tensor of which each element has a thread."""
    params: dict[str, Any] = {"ndim": walked.dim(), "reduce_dim": dim, "index_stride": index.stride(0)}
    for word, one in (("self", of), ("source", walked)):
        params |= {f"{word}_strides": one.stride(), f"{word}_sizes": list(one.shape)}
    return params


def _selects(call: Call, *tensors: torch.Tensor) -> bool:
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
    if index is None or not x.dim() or not _selects(call, x, index) or x.dtype not in NAMES:
        return None
    dim, count = call.given["dim"] % x.dim(), index.numel()
    out = result_of(call, (*x.shape[:dim], count, *x.shape[dim + 1 :]), x.dtype)
    if out is None:
        return None
    check, to = _check(index, x.shape[dim]), _INDEX_NAMES[index.dtype]
    if not all(one.is_contiguous() for one in (x, out, index)):
        name = f"index_select_dim_{8 * x.element_size()}bit_{to}"
        buffers: tuple[Any, ...] = (out, index, x, _params(dim, index, x, out))
        grid: tuple[int, ...] = (out.numel(),)
    else:
        row = math.prod(x.shape[dim + 1 :]) * x.element_size()
        size = _bytes_at_once(x, out, row)
        inner = row // size
        name = f"index_select_dim_dense_{8 * size}bit_{to}"
        params = {"inner": inner, "in_dim_size": x.shape[dim], "out_dim_size": count, "index_stride": index.stride(0)}
        buffers, grid = (out, index, x, params), (inner, count, math.prod(x.shape[:dim]))
    return Work((out,), (check, Launch(name, buffers, grid)))


def _add(call: Call) -> Work | None:
    x, source = call.given["self"], call.given["source"]
    index = _line(call.given["index"])
    if index is None or not _selects(call, x, source, index) or source.dtype != x.dtype or source.dim() != x.dim():
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
    name = f"index_add_{NAMES.get(dtype)}_{_INDEX_NAMES[index.dtype]}"
    number = complex(alpha) if dtype.is_complex else alpha
    buffers = (added, index, source, _params(dim, index, added, source), number)
    launches = (check, Launch(name, buffers, (source.numel(),)))
    return Work((out,), launches, copies=((into, added),) if crowded else ())


INDEX_SLICES: dict[str, Describe] = {
    "index_copy": _copy,
    "index_fill": _fill,
    "index_reduce": _reduce,
    "index_select": _select,
    "index_add": _add,
}
