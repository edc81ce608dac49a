"""Operators that add to, or multiply, what lies at places that a tensor of indices tells.

Source: `ScatterGather.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, and `Embedding.mm` for the
embedding's backward, which sums in float32 whatever the dtype; at states with the arguments that the kernels of torch
2.13's wheel describe. `Indexing.mm` for `index_add`, at a state with those of torch 2.15's: there a kernel of its own
checks the indices first, a thread each.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, laid, operand_to_write

_ERRORS, _ERRORS_STRIDED = 7, 10  # the slot of the error buffer of kernels for dense tensors, and for others
_MOST = 16  # dimensions that a kernel counts
_REDUCED = {"sum": "add", "add": "add", "prod": "prod", "multiply": "prod"}  # extremes are the CPU's, to the bit
_CHECK_ERRORS = 3
_CROWDED = 16  # so many indices a slice, and halves are added up in float32
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_INDEX_NAMES = {torch.int64: "long", torch.int32: "int"}


def _is_aligned(one: torch.Tensor, index: torch.Tensor, dim: int) -> bool:
    """Whether they have the same sizes but for one dimension."""
    return one.dim() == index.dim() and all(
        at == dim or left == right for at, (left, right) in enumerate(zip(one.shape, index.shape, strict=True))
    )


def _fits(one: torch.Tensor, index: torch.Tensor, dim: int) -> bool:
    """Whether the index is no larger, but for one dimension."""
    return one.dim() == index.dim() <= _MOST and all(
        at == dim or left >= right for at, (left, right) in enumerate(zip(one.shape, index.shape, strict=True))
    )


def _scatter(call: KernelCall, mode: str) -> Work | None:
    if "src" not in call.given:
        return None  # a number
    x, index, source = (call.given[name] for name in ("self", "index", "src"))
    if not x.dim() or not call.is_read_or_older or not call.takes(x, index, source) or source.dtype != x.dtype:
        return None
    dim = call.given["dim"] % x.dim()
    out = operand_to_write(call, x) if _fits(x, index, dim) and _fits(source, index, -1) else None
    if out is None:
        return None
    dense = all(one.is_contiguous() for one in (out, index, source))
    dense = dense and _is_aligned(out, index, dim) and source.shape == index.shape
    name = f"scatter_{mode}_{'dense' if dense else 'strided'}_{NAMES.get(x.dtype)}_{NAMES.get(index.dtype)}"
    size, strides = out.shape[dim], [one.stride() for one in (out, source, index)]
    places: tuple[Any, ...] = (list(index.shape), *strides, [index.dim(), dim, 0], size, 0)
    if dense:
        places = (math.prod(out.shape[dim + 1 :]), index.shape[dim], size, 0)
    errors = _ERRORS if dense else _ERRORS_STRIDED
    return Work((out,), (Launch(name, (out, source, index, *places), (index.numel(),), None, errors),))


def _scatter_named(call: KernelCall) -> Work | None:
    """`scatter` and `scatter_reduce` with the name of what they do with each number."""
    mode = _REDUCED.get(call.given.get("reduce", ""))
    return _scatter(call, mode) if mode is not None and call.given.get("include_self", True) else None


def _embedding_dense_backward(call: KernelCall) -> Work | None:
    gradient, indices = call.given["grad_output"], call.given["indices"]
    rows, by_count = call.given["num_weights"], call.given["scale_grad_by_freq"]
    types = f"{NAMES.get(gradient.dtype)}_{NAMES.get(indices.dtype)}_32"
    name = f"embedding_dense_backward_{types}"
    count = f"embedding_dense_backward_count_{NAMES.get(indices.dtype)}_32"
    if not call.is_read_or_older or not call.makes(indices, gradient) or not indices.is_contiguous():
        return None
    if gradient.dim() != indices.dim() + 1:
        return None
    features = gradient.shape[-1]
    total = call.zeros((rows, features), torch.float32)
    params = {
        "outer_sizes": list(indices.shape),
        "grad_outer_strides": list(gradient.stride()[:-1]),
        "indices_strides": list(indices.stride()),
        "grad_feature_stride": gradient.stride(-1),
        "outer_ndim": indices.dim(),
        "feature_size": features,
        "padding_idx": call.given["padding_idx"],
        "scale_grad_by_freq": by_count,
    }
    counts = call.zeros([rows], torch.int32) if by_count else total
    counting = (Launch(count, (indices, counts, params), (indices.numel(),)),) if by_count else ()
    adding = Launch(name, (gradient, indices, counts, total, params), (gradient.numel(),))
    out = total if gradient.dtype == total.dtype else call.empty(total.shape, gradient.dtype)
    copies = () if out is total else ((out, total),)
    return Work((out,), (*counting, adding), copies=copies)


def _line(index: torch.Tensor) -> torch.Tensor | None:
    """The indices as one dimension; None for those that no kernel takes."""
    if index.dim() > 1 or index.dtype not in _INDEX_NAMES:
        return None
    return index.view(1) if index.dim() == 0 else index


def _index_add(call: KernelCall) -> Work | None:
    x, source = call.given["self"], call.given["source"]
    index = _line(call.given["index"])
    if index is None or not isinstance(call.given["dim"], int) or not call.takes(x, source, index):
        return None
    if source.dtype != x.dtype or source.dim() != x.dim() or torch.are_deterministic_algorithms_enabled():
        return None  # else the host adds by `index_put_`
    out = operand_to_write(call, x)
    alpha = call.given["alpha"]
    if out is None or (not out.dim() and out.numel() != 1):
        return None
    into, source = (one.view(1) if one.dim() == 0 else one for one in (out, source))
    dim = call.given["dim"] % into.dim()
    if index.numel() != source.shape[dim] or not _is_aligned(into, source, dim):
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
    of, threads = _INDEX_NAMES[index.dtype], (index.numel(),)
    bounds = (index, index.stride(0), into.shape[dim])
    params: dict[str, Any] = {"ndim": source.dim(), "reduce_dim": dim, "index_stride": index.stride(0)}
    params |= laid(self=added, source=source)
    buffers = (added, index, source, params, complex(alpha) if dtype.is_complex else alpha)
    launches = (
        Launch(f"index_check_bounds_{of}", bounds, threads, errors=_CHECK_ERRORS),
        Launch(f"index_add_{NAMES.get(dtype)}_{of}", buffers, (source.numel(),)),
    )
    return Work((out,), launches, copies=((into, added),) if crowded else ())


SCATTERS: dict[str, Describe] = {
    "scatter": _scatter_named,
    "scatter_add": lambda call: _scatter(call, "add"),
    "scatter_reduce": _scatter_named,
    "embedding_dense_backward": _embedding_dense_backward,
    "index_add": _index_add,
}
