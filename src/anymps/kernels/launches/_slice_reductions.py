"""Slices along a dimension that a tensor of indices names: added to, and reduced.

Source: `Indexing.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, at a state with the arguments that
the kernels of torch 2.13's wheel describe, or, for `index_add`, those of torch 2.15's: there a kernel of its own checks
the indices first, a thread each. The host fills slices with what they begin with.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import have_numbers, operand_to_write
from anymps.kernels.launches._types import NAMES

_INDICES = (torch.int64, torch.int32)
_CHECK_ERRORS = 3
_CROWDED = 16  # so many indices a slice, and halves are added up in float32
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_INDEX_NAMES = {torch.int64: "long", torch.int32: "int"}


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return call.is_read and not call.foreign and have_numbers(tensors)


def _others(values: Any, dim: int) -> list[int]:
    """Sizes or strides without those of the dimension."""
    return [value for at, value in enumerate(values) if at != dim]


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
        out.index_fill_(dim, index.long(), _first_of(reduce, x.dtype))
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


SLICE_REDUCTIONS: dict[str, Describe] = {"index_reduce": _reduce, "index_add": _add}
