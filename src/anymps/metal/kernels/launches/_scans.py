"""Operators that go along a dimension and keep every step: sums, products, the largest so far.

Source: `aten/src/ATen/native/mps/operations/ScanKernel.mm` of the pytorch tree, whose kernels are those of the wheels
of torch 2.13 and 2.15, with the same arguments. A group of threads scans a row, or a column of 32 neighbours; what the
host splits is in _split_scans.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import result_of
from anymps.metal.kernels.launches._split_scans import split_scan
from anymps.metal.kernels.launches._types import NAMES

_READ = (2, 15)  # what the host does in later releases was not looked up
_LANES = 32
_MOST = 1024  # threads of a group
_WIDTH = 32  # neighbours that a group takes where it goes across rows


def _scan(call: Call, kernel: str) -> Work | None:
    """Sums and products; of integers in 64 bits."""
    x = call.given["self"]
    whole = kernel != "logcumsumexp" and not (x.is_floating_point() or x.is_complex())
    result = call.given.get("dtype") or (torch.int64 if whole else x.dtype)
    if result != x.dtype and not (whole and result == torch.int64):
        return None
    if x.dtype != result and not (x.dtype == torch.int32 and kernel == "cumsum"):
        x = x.to(result)
    out = result_of(call, x.shape, result)
    if out is None:
        return None
    if kernel != "logcumsumexp" and call.release <= _READ and _is_plain(call, x, out):
        split = split_scan(call, kernel, x, out)
        if split is None or split:
            return None if split is None else Work((out,), split)
    wide = out.element_size() > 4  # half precision is summed in float32
    return _launch(call, kernel, x, (out,), reads=2 if wide else 4)


def _extreme(call: Call, kernel: str) -> Work | None:
    """The helpers of `cummax` and `cummin` write what they are given, and return nothing."""
    x = call.given["self"]
    new = (torch.empty(x.shape, dtype=one, device="cpu") for one in (x.dtype, torch.int64))
    outs = call.written if call.written else tuple(new)
    work = _launch(call, kernel, x, outs, reads=4 if x.element_size() <= 4 else 2)
    returns = not call.operator.endswith("_helper")
    return work if work is None or returns else replace(work, results=())


def _is_plain(call: Call, x: torch.Tensor, out: torch.Tensor) -> bool:
    return bool(x.dim() and x.numel()) and not (call.foreign or x.is_conj() or x.is_neg()) and out.shape == x.shape


def _launch(call: Call, kernel: str, x: torch.Tensor, outs: tuple[torch.Tensor, ...], reads: int) -> Work | None:
    if call.release > _READ or not _is_plain(call, x, outs[0]):
        return None
    if not all(one.is_contiguous() and one.shape == x.shape for one in (x, *outs)):
        return None
    dim = call.given["dim"] % x.dim()
    inner = dim == x.dim() - 1
    types = "_".join(dict.fromkeys(NAMES.get(one.dtype, "") for one in (x, outs[0])))
    name = call.first([f"{kernel}_{'innermost' if inner else 'outer'}_{types}"])
    count, before, after = x.shape[dim], math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    if name is None:
        return None
    kept = x is call.given["self"]  # else a copy in another dtype
    if inner:
        width = _row_width(count, reads)
        return Work(outs, (Launch(name, (x, *outs, count), (width, before, 1), (width, 1, 1)),), kept=kept)
    blocks = -(-after // _WIDTH)
    width = _WIDTH // reads * _LANES
    places = (count, after, blocks)
    return Work(outs, (Launch(name, (x, *outs, *places), (width, before * blocks, 1), (width, 1, 1)),), kept=kept)


def _row_width(count: int, reads: int) -> int:
    """Threads of the group of a row: each takes `reads` numbers at once, and loops from 2048 times as many on."""
    if count <= reads * _MOST:
        wanted = count
    elif count <= reads * 2 * _MOST:
        wanted = count // 2
    else:
        return _MOST
    return min(-(-wanted // (reads * _LANES)) * _LANES, _MOST)


def _both(word: str, of: str, describe: Describe) -> dict[str, Describe]:
    """An operator, and the helper as which it comes to a backend."""
    return {word: describe, of: describe}


SCANS: dict[str, Describe] = {
    **{name: lambda call, name=name: _scan(call, name) for name in ("cumsum", "cumprod")},  # type: ignore[misc]
    **_both("logcumsumexp", "_logcumsumexp", lambda call: _scan(call, "logcumsumexp")),
    **_both("cummax", "_cummax_helper", lambda call: _extreme(call, "cummax")),
    **_both("cummin", "_cummin_helper", lambda call: _extreme(call, "cummin")),
}
