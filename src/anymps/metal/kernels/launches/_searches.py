"""Searches in sorted numbers.

Source: `aten/src/ATen/native/mps/operations/Bucketization.mm` of the pytorch tree, at a state with the arguments that
the kernels of torch 2.13's wheel describe. A group takes up to 1024 numbers, and there are up to 1024 groups.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES

_MOST, _MOST_GROUPS = 1024, 1024


def _search(call: Call, x: object, boundaries: torch.Tensor, right: bool, sorter: torch.Tensor | None) -> Work | None:
    if not call.is_read or call.written or call.foreign or not isinstance(x, torch.Tensor):
        return None
    given = [x, boundaries, *([] if sorter is None else [sorter])]
    if x.dtype != boundaries.dtype or not all(one.is_contiguous() and one.numel() for one in given):
        return None
    dtype = torch.int32 if call.given["out_int32"] else torch.int64
    name = call.first([f"searchsorted_{NAMES.get(x.dtype)}_{NAMES[dtype]}{'_sorter' * (sorter is not None)}"])
    if name is None or not boundaries.dim():
        return None
    out = torch.empty(x.shape, dtype=dtype, device="cpu")
    group = min(_MOST, x.numel())
    groups = min(_MOST_GROUPS, -(-x.numel() // group))
    sizes = (x.shape[-1] if x.dim() else 1, boundaries.shape[-1], x.numel(), int(right), int(boundaries.dim() == 1))
    buffers = (x, boundaries, out, *sizes, *given[2:])
    return Work((out,), (Launch(name, buffers, (groups * group,), (group,)),), kept=True)


def _searchsorted(call: Call) -> Work | None:
    right = call.given["right"] or call.given["side"] == "right"
    return _search(call, call.given["self"], call.given["sorted_sequence"], right, call.given["sorter"])


def _bucketize(call: Call) -> Work | None:
    boundaries = call.given["boundaries"]
    return _search(call, call.given["self"], boundaries, call.given["right"], None) if boundaries.dim() == 1 else None


SEARCHES: dict[str, Describe] = {"searchsorted": _searchsorted, "bucketize": _bucketize}
