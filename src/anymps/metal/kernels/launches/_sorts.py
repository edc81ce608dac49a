"""Sorting along the last dimension, of rows that a group of threads holds.

Source: `aten/src/ATen/native/mps/operations/Sort.mm` of the pytorch tree: four numbers a thread, a power of two of
threads. Longer rows, a single row and other dimensions go through several kernels or MPSGraph, and are left out.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES

_READ = (2, 13)  # what the host does in later releases was not looked up
_A_THREAD, _LANES = 4, 32
_LONGEST = 256  # rows that no release hands to other kernels


def _sort(call: Call) -> Work | None:
    x, dim = call.given["self"], call.given["dim"]
    if call.release > _READ or call.written or call.foreign or not isinstance(dim, int):
        return None
    if not x.dim() or not x.is_contiguous() or dim % x.dim() != x.dim() - 1:
        return None
    count = x.shape[-1]
    if not 1 < count <= _LONGEST or x.numel() < 2 * count:
        return None
    width = _LANES
    while width * _A_THREAD < count:
        width *= 2
    stable = "_stable" * bool(call.given.get("stable"))
    name = call.first([f"sort_block_{NAMES.get(x.dtype)}_tptg{width}{stable}"])
    if name is None:
        return None
    values, places = (torch.empty(x.shape, dtype=one, device="cpu") for one in (x.dtype, torch.int64))
    buffers = (x, values, places, count, [1, count], call.given["descending"])
    return Work((values, places), (Launch(name, buffers, (width, x.numel() // count, 1), (width, 1, 1)),))


SORTS: dict[str, Describe] = {"sort": _sort}
