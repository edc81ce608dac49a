"""Operators that add to, or compare with, what lies at places that a tensor of indices tells.

Source: `ScatterGather.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, and `Embedding.mm` for the
embedding's backward, which sums in float32 whatever the dtype; at states with the arguments that the kernels of torch
2.13's wheel describe.
"""

from __future__ import annotations

import math

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.kernels.launches._elements import have_numbers, operand_to_write
from anymps.kernels.launches._types import NAMES

_ERRORS, _ERRORS_STRIDED = 7, 10  # the slot of the error buffer of kernels for dense tensors, and for others
_MOST = 16  # dimensions that a kernel counts
_REDUCED = {"sum": "add", "add": "add", "prod": "prod", "multiply": "prod", "amax": "amax", "amin": "amin"}


def _is_known(call: Call, *tensors: torch.Tensor) -> bool:
    return call.is_read_or_older and not call.foreign and have_numbers(tensors)


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return _is_known(call, *tensors) and all(one.is_contiguous() for one in tensors)


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


def _dense_sizes(x: torch.Tensor, index: torch.Tensor, dim: int) -> tuple[int, ...]:
    return (math.prod(x.shape[dim + 1 :]), index.shape[dim], x.shape[dim], 0)


def _strided(name: str, to: torch.Tensor, source: torch.Tensor, index: torch.Tensor, dim: int, size: int) -> Launch:
    """A kernel that goes by strides; `size` is that of the dimension in what the index names places of."""
    strides = (to.stride(), source.stride(), index.stride())
    buffers = (to, source, index, list(index.shape), *strides, [index.dim(), dim, 0], size, 0)
    return Launch(name, buffers, (index.numel(),), None, _ERRORS_STRIDED)


def _scatter(call: Call, mode: str) -> Work | None:
    if "src" not in call.given:
        return None  # a number
    x, index, source = (call.given[name] for name in ("self", "index", "src"))
    if not x.dim() or not _is_known(call, x, index, source) or source.dtype != x.dtype:
        return None
    dim = call.given["dim"] % x.dim()
    out = operand_to_write(call, x) if _fits(x, index, dim) and _fits(source, index, -1) else None
    if out is None:
        return None
    dense = all(one.is_contiguous() for one in (out, index, source))
    dense = dense and _is_aligned(out, index, dim) and source.shape == index.shape
    name = f"scatter_{mode}_{'dense' if dense else 'strided'}_{NAMES.get(x.dtype)}_{NAMES.get(index.dtype)}"
    if dense:
        buffers = (out, source, index, *_dense_sizes(out, index, dim))
        launch = Launch(name, buffers, (index.numel(),), None, _ERRORS)
    else:
        launch = _strided(name, out, source, index, dim, out.shape[dim])
    if "am" in mode and x.dtype == torch.int64:  # kernels compare without signs: those are turned around, and back
        turned = Launch("scatter_signbit_xor_long", (out, 0), (out.numel(),))
        return Work((out,), (turned, launch, turned)) if out.is_contiguous() else None
    return Work((out,), (launch,))


def _scatter_named(call: Call) -> Work | None:
    """`scatter` with the name of what it does with each number."""
    reduce = call.given.get("reduce")
    return _scatter(call, _REDUCED[reduce]) if reduce in _REDUCED else None


def _scatter_reduce(call: Call) -> Work | None:
    reduce = call.given["reduce"]
    if reduce not in _REDUCED or not call.given["include_self"]:
        return None
    return _scatter(call, _REDUCED[reduce])


def _embedding_dense_backward(call: Call) -> Work | None:
    gradient, indices = call.given["grad_output"], call.given["indices"]
    rows, by_count = call.given["num_weights"], call.given["scale_grad_by_freq"]
    types = f"{NAMES.get(gradient.dtype)}_{NAMES.get(indices.dtype)}_32"
    name = f"embedding_dense_backward_{types}"
    count = f"embedding_dense_backward_count_{NAMES.get(indices.dtype)}_32"
    plain = not call.written and _is_plain(call, indices) and gradient.numel()  # it may be expanded
    if not plain or gradient.dim() != indices.dim() + 1:
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
    made = tuple(Made(one, "zeros") for one in ((total, counts) if by_count else (total,)))
    cast = None if gradient.dtype == total.dtype else gradient.dtype
    return Work((total,), (*counting, adding), cast, kept=cast is None, made=made)


SCATTERS: dict[str, Describe] = {
    "scatter": _scatter_named,
    "scatter_add": lambda call: _scatter(call, "add"),
    "scatter_reduce": _scatter_reduce,
    "embedding_dense_backward": _embedding_dense_backward,
}
