"""Numbers without their repetitions, of torch 2.15: all of them in order, or runs of equal neighbours.

Source: `Unique.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations` and _unique_impl_mps in libtorch_cpu of
torch 2.15's macOS wheel. The host sorts, marks where a number differs from the one before it, sums up the marks in 64
bits, and reads how many there are before it makes the results. Truth values are sorted as bytes.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from anymps.metal.kernels.launches._binary import BINARY
from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._scans import SCANS
from anymps.metal.kernels.launches._sorts import sort_along
from anymps.metal.kernels.launches._types import NAMES


def _room(size: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device="cpu")


def _scan(call: Call, mask: torch.Tensor) -> Work | None:
    given = {"self": mask, "dim": 0, "dtype": None}
    return SCANS["cumsum"](replace(call, operator="aten::cumsum", given=given, written=()))


def _less_one(call: Call, scan: torch.Tensor) -> Work | None:
    given = {"self": scan, "other": torch.tensor(1, device="cpu"), "alpha": 1}
    return BINARY["sub"](replace(call, operator="aten::sub", given=given, written=(), foreign=frozenset({"other"})))


def _runs(x: torch.Tensor) -> int:
    """How many there are: a NaN equals no other."""
    return 1 + int((x[1:] != x[:-1]).sum())


def _sorted(call: Call, flat: torch.Tensor) -> tuple[list[Launch], torch.Tensor, torch.Tensor] | None:
    """The launches that sort, the numbers in order, and where each was; None where the host copies instead."""
    if flat.numel() == 1:
        return None
    ordered, order = torch.empty_like(flat), _room(flat.numel())
    work = sort_along(call, flat, 0, ordered, order, {"descending": False, "stable": False})
    return None if work.copies else (list(work.launches), ordered, order)


def _unique(call: Call, consecutive: bool) -> Work | None:
    x, inverted, counted = (call.given.get(name) for name in ("self", "return_inverse", "return_counts"))
    if call.foreign or call.written or call.given.get("dim") is not None or not isinstance(x, torch.Tensor):
        return None
    if not x.numel() or x.is_neg() or x.dtype not in NAMES or x.is_complex():
        return None
    flat = x.contiguous().view(-1)
    flat = flat.view(torch.uint8) if x.dtype == torch.bool else flat
    of, count = NAMES[flat.dtype], flat.numel()
    sorting = ([], flat, _room(0)) if consecutive else _sorted(call, flat)
    if sorting is None:
        return None
    launches, ordered, order = sorting
    mask = _room(count, torch.int32)
    scan = _scan(call, mask)
    names = [f"unique_mark_boundaries_{of}", f"unique_emit_{of}_64", "unique_counts", "unique_inverse_64"]
    if scan is None or scan.results[0].dtype != torch.int64:
        return None
    (sums,) = scan.results
    found = _runs(ordered if consecutive else flat.sort().values)
    values, ends = _room(found, flat.dtype), _room(found)
    counts, inverse = _room(found if counted else 0), _room(count if inverted else 0)
    mark, emit, count_up, invert = names
    launches += [
        Launch(mark, (ordered, mask), (count,)),
        *scan.launches,
        Launch(emit, (ordered, mask, sums, values, ends), (count,)),
    ]
    if counted:
        launches.append(Launch(count_up, (ends, counts, found, count), (found,)))
    if inverted and consecutive:
        less = _less_one(call, sums)
        if less is None:
            return None
        (inverse,) = less.results
        launches += less.launches
    elif inverted:
        launches.append(Launch(invert, (order, sums, inverse), (count,)))
    if inverted:
        inverse = inverse.view(x.shape)
    results = (values.view(x.dtype) if x.dtype == torch.bool else values, inverse, counts)
    return Work(results if counted is not None else results[:2], tuple(launches))


UNIQUES: dict[str, Describe] = {
    "_unique": lambda call: _unique(call, consecutive=False),
    "_unique2": lambda call: _unique(call, consecutive=False),
    "unique_consecutive": lambda call: _unique(call, consecutive=True),
}
