"""Reads and writes at the places that tensors of indices tell, one for each of some dimensions.

Source: `dispatch_index_kernel` and its callers in `aten/src/ATen/native/mps/operations/Indexing.mm` of the pytorch
tree, at a state with the arguments that the kernels of torch 2.13's wheel describe. What the host's iterator would
merge into fewer dimensions is left as it is: the same elements meet. Masks among the indices are left to the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import reach, sizes_of, strides_of
from anymps.metal.kernels.launches._types import NAMES

_ERRORS = 10  # the slot of the error buffer
_MOST = 16  # dimensions that a kernel counts


@dataclass(frozen=True)
class _Indexed:
    """The elements that indices name: their shape, how they lie before an index is added, and the indices."""

    shape: torch.Size
    lies: torch.Tensor
    indices: tuple[torch.Tensor, ...]
    sizes: list[int]
    strides: list[int]


def _indexed(x: torch.Tensor, given: Sequence[Any]) -> _Indexed | None:
    indices = [*given, *[None] * (x.dim() - len(given))]
    named = [at for at, one in enumerate(indices) if one is not None]
    if not named or len(indices) > x.dim() or not x.numel():
        return None
    tensors = [indices[at] for at in named]
    if any(one.dtype not in (torch.int64, torch.int32) or not one.numel() for one in tensors):
        return None
    try:
        places = torch.broadcast_tensors(*(one.long() for one in tensors))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None  # the CPU has the words for it
    inside = named == list(range(named[0], named[-1] + 1))  # else their dimensions come first
    before = list(range(named[0])) if inside else []
    after = [at for at in range(x.dim()) if at not in named and at not in before]
    spread = list(places[0].shape)
    shape = torch.Size([*(x.shape[at] for at in before), *spread, *(x.shape[at] for at in after)])
    if len(shape) > _MOST:
        return None
    strides = [*(x.stride(at) for at in before), *[0] * len(spread), *(x.stride(at) for at in after)]
    laid = tuple(
        one.contiguous().reshape(*[1] * len(before), *spread, *[1] * len(after)).expand(shape) for one in places
    )
    size = x.element_size()
    return _Indexed(
        shape, x.as_strided(shape, strides), laid, [x.shape[at] for at in named], [x.stride(at) * size for at in named]
    )


def _range(one: torch.Tensor) -> tuple[int, int]:
    """The addresses that it lies between."""
    return one.data_ptr(), one.data_ptr() + reach(one) * one.element_size()


def _apart(x: torch.Tensor, *others: torch.Tensor) -> bool:
    """Whether each element that is written has memory of its own: else PyTorch refuses, in its own words."""
    start, end = _range(x)
    alone = all(size == 1 or stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return alone and all(high <= start or end <= low for low, high in map(_range, others) if low != high)


def _launch(kernel: str, found: _Indexed, to: torch.Tensor, source: torch.Tensor, written: torch.Tensor) -> Launch:
    """`to` and `source` as the elements lie in them; `written` is what the first buffer is."""
    sizes = sizes_of(found.shape)
    buffers = (
        *(written, source, [{"indexArray": [one]} for one in found.indices], sizes),
        *(strides_of(one, found.shape) for one in (to, source, found.indices[0])),
        *(found.sizes, found.strides, [len(sizes), len(found.indices), found.shape.numel(), 0]),
    )
    return Launch(kernel, buffers, (found.shape.numel(),), None, _ERRORS)


def _index(call: Call) -> Work | None:
    x = call.given["self"]
    if not call.is_read or call.written or call.foreign or not x.is_contiguous() or x.is_conj() or x.is_neg():
        return None
    found = _indexed(x, call.given["indices"])
    name = f"index_select_{8 * x.element_size()}bit"
    if found is None or not found.shape.numel():
        return None
    out = torch.empty(found.shape, dtype=x.dtype, device="cpu")
    return Work((out,), (_launch(name, found, out, found.lies, out),))


def _index_put(call: Call) -> Work | None:
    x, values = call.given["self"], call.given["values"]
    if not call.is_read or call.foreign or not call.written or call.written[0] is not x:
        return None
    tensors = [one for one in call.given["indices"] if one is not None]
    if not x.numel() or not values.numel() or not _apart(x, values, *tensors):
        return None
    if x.dtype != values.dtype or any(one.is_conj() or one.is_neg() for one in (x, values)):
        return None
    found = _indexed(x, call.given["indices"])
    kind, end = "index_put", f"{8 * x.element_size()}bit"
    if call.given["accumulate"]:
        kind, end = "index_put_accumulate", NAMES.get(x.dtype, "none")
    elif torch.are_deterministic_algorithms_enabled():
        kind = "index_put_serial"
    name = f"{kind}_{end}"
    if found is None or not found.shape.numel():
        return None
    try:
        values = values.expand(found.shape)
    except RuntimeError:
        return None
    launch = _launch(name, found, found.lies, values, x)
    return Work((x,), (replace(launch, threads=(1,)) if kind == "index_put_serial" else launch,))


INDEXING: dict[str, Describe] = {"index": _index, "_index_put_impl_": _index_put}
