"""Operators that read or write at places that a tensor of indices tells.

Source: the arguments that the kernels of torch 2.13's wheel describe; of the embedding's backward
`aten/src/ATen/native/mps/operations/Embedding.mm` of the pytorch tree, which sums in float32 whatever the dtype.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES

_READ = (2, 13)  # what the host does in later releases was not looked up
_ERRORS = 7  # the slot of the error buffer of kernels for dense tensors
_REDUCED = {"sum": "add", "add": "add", "prod": "prod", "multiply": "prod", "amax": "amax", "amin": "amin"}


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return (
        call.release <= _READ
        and not call.foreign
        and all(one.is_contiguous() and one.numel() and not (one.is_conj() or one.is_neg()) for one in tensors)
    )


def _is_aligned(one: torch.Tensor, index: torch.Tensor, dim: int) -> bool:
    """Whether they have the same sizes but for one dimension."""
    return one.dim() == index.dim() and all(
        at == dim or left == right for at, (left, right) in enumerate(zip(one.shape, index.shape, strict=True))
    )


def _result(call: Call, x: torch.Tensor) -> torch.Tensor | None:
    """Where to write: what the call was given, or a copy of its operand; in place it holds the operand already."""
    if not call.written:
        return x.clone()
    out = call.written[0]
    if out.dtype != x.dtype or out.shape != x.shape or not out.is_contiguous():
        return None
    return out if out is x else out.copy_(x)


def _gather(call: Call) -> Work | None:
    x, index = call.given["self"], call.given["index"]
    if call.given.get("sparse_grad") or call.written or not x.dim() or not _is_plain(call, x, index):
        return None
    dim = call.given["dim"] % x.dim()
    name = call.first([f"gather_dense_{NAMES.get(x.dtype)}_{NAMES.get(index.dtype)}"])
    if name is None or not _is_aligned(x, index, dim):
        return None
    out = torch.empty(index.shape, dtype=x.dtype, device="cpu")
    sizes = (math.prod(x.shape[dim + 1 :]), index.shape[dim], x.shape[dim], 0)
    return Work((out,), (Launch(name, (out, x, index, *sizes), (index.numel(),), None, _ERRORS),))


def _scatter(call: Call, mode: str) -> Work | None:
    x, index = call.given["self"], call.given["index"]
    source: Any = call.given.get("src", call.given.get("value"))
    if isinstance(source, torch.Tensor):
        source = source.contiguous()  # a gradient may be expanded
    given = [one for one in (x, index, source) if isinstance(one, torch.Tensor)]
    if not x.dim() or not _is_plain(call, *given) or any(one.dtype != x.dtype for one in given[2:]):
        return None
    dim = call.given["dim"] % x.dim()
    types = f"{NAMES.get(x.dtype)}_{NAMES.get(index.dtype)}"
    number = not isinstance(source, torch.Tensor)
    name = call.first([f"scatter_{mode}_dense_{'value_' * number}{types}"])
    if name is None or not _is_aligned(x, index, dim) or not (number or source.shape == index.shape):
        return None
    if number and (x.is_complex() or isinstance(source, complex)):
        return None
    out = _result(call, x)
    if out is None:
        return None
    sizes = (math.prod(x.shape[dim + 1 :]), index.shape[dim], x.shape[dim], 0)
    return Work((out,), (Launch(name, (out, source, index, *sizes), (index.numel(),), None, _ERRORS),))


def _scatter_named(call: Call) -> Work | None:
    """`scatter` alone, or with the name of what it does with each number."""
    reduce = call.given.get("reduce")
    if reduce is not None and (reduce not in _REDUCED or "src" not in call.given):
        return None
    return _scatter(call, "set" if reduce is None else _REDUCED[reduce])


def _scatter_reduce(call: Call) -> Work | None:
    reduce = call.given["reduce"]
    if reduce not in _REDUCED or not call.given["include_self"]:
        return None
    if "am" in reduce and call.given["self"].dtype == torch.int64:
        return None  # the host turns signs around first, and back afterwards
    return _scatter(call, _REDUCED[reduce])


def _embedding_dense_backward(call: Call) -> Work | None:
    gradient, indices = call.given["grad_output"], call.given["indices"]
    rows, by_count = call.given["num_weights"], call.given["scale_grad_by_freq"]
    types = f"{NAMES.get(gradient.dtype)}_{NAMES.get(indices.dtype)}_32"
    name = call.first([f"embedding_dense_backward_{types}"])
    count = call.first([f"embedding_dense_backward_count_{NAMES.get(indices.dtype)}_32"])
    plain = not call.written and _is_plain(call, indices) and gradient.numel()  # it may be expanded
    if name is None or count is None or not plain or gradient.dim() != indices.dim() + 1:
        return None
    features = gradient.shape[-1]
    total = torch.zeros((rows, features), dtype=torch.float32, device="cpu")
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
    counts = torch.zeros(rows, dtype=torch.int32, device="cpu") if by_count else total
    counting = (Launch(count, (indices, counts, params), (indices.numel(),)),) if by_count else ()
    adding = Launch(name, (gradient, indices, counts, total, params), (gradient.numel(),))
    return Work((total,), (*counting, adding), gradient.dtype)


PLACES: dict[str, Describe] = {
    "gather": _gather,
    "scatter": _scatter_named,
    "scatter_add": lambda call: _scatter(call, "add"),
    "scatter_reduce": _scatter_reduce,
    "embedding_dense_backward": _embedding_dense_backward,
}
