"""Which kernels a family of several launches comes to: calls of many shapes are described, and not run."""

from __future__ import annotations

import functools
import itertools
from typing import Any
from unittest import mock

import torch

from anymps.kernels.launches import DESCRIBED, KernelCall, _call
from described import EveryKernel

_DTYPES = {  # those that sorts treat alike, by the name of the first
    torch.float32: ("float",),
    torch.float16: ("half", "bfloat"),
    torch.int64: ("long",),
    torch.int32: ("int",),
    torch.int16: ("short",),
    torch.int8: ("char", "uchar", "bool"),
}
_ROWS = (1, 2, 3, 32, 64, 256, 257)
_COUNTS = (5, 200, 300, 600, 1100, 2047, 2048, 2049, 4100, 5000, 9000, 17_000, 33_000, 65_536, 66_000, 140_000)


def _no_room(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@functools.cache
def sort_kernels(release: tuple[int, int]) -> frozenset[str]:
    """Those of sorts, of the largest numbers, and of the number at a place."""
    found: set[str] = set()
    with mock.patch.object(_call, "empty", _no_room):
        for (dtype, names), rows, count in itertools.product(_DTYPES.items(), _ROWS, _COUNTS):
            for shape, dim in (((rows, count), 1), ((count, rows), 0)):
                x = torch.empty(shape, dtype=dtype, device="meta")
                seen = _kernels("sort", release, self=x, dim=dim, descending=False, stable=False)
                seen |= _kernels("sort", release, self=x, dim=dim, descending=False, stable=True)
                seen |= _kernels("topk", release, self=x, k=3, dim=dim, largest=True)
                seen |= _kernels("kthvalue", release, self=x, k=3, dim=dim, keepdim=False)
                found |= {one.replace(f"_{names[0]}_", f"_{name}_") for one in seen for name in names}
    return frozenset(found)


def _kernels(operator: str, release: tuple[int, int], **given: Any) -> set[str]:
    work = DESCRIBED[operator](KernelCall(given, (), frozenset(), EveryKernel(), release))
    return set() if work is None else {one.kernel for one in work.launches}
