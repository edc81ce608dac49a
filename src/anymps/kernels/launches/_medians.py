"""Medians, of all numbers and along a dimension, of torch 2.15.

Source: median_impl_mps, median_radix_select, median_with_indices_impl_mps and median_sort_gather in libtorch_cpu of
torch 2.15's macOS wheel. All numbers are counted by eight bits of their keys a pass, the highest first; a thread then
picks the digit of the median. Along a dimension, floats are sorted, and a thread a row looks for the NaNs behind them;
integers are the k-th of a row.
"""

from __future__ import annotations

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._sorts import outs_without, sort_along, sorted_dim
from anymps.kernels.launches._types import NAMES

_GROUP, _MOST_GROUPS = 256, 256
_BINS = 257  # of eight bits, and one of NaNs
_DIGIT = 8  # bits
_STATE = 3  # 64-bit integers
_MOST = 2**32 - 1


def _of_all(call: Call, ignores_nan: bool) -> Work | None:
    x = call.given["self"]
    if call.foreign or call.written or not 0 < x.numel() <= _MOST or x.is_neg():
        return None
    of = NAMES.get(x.dtype)
    count, pick = (f"median_select_{word}_{of}" for word in ("hist", "pick"))
    x = x.contiguous()
    out = torch.empty((), dtype=x.dtype, device="cpu")
    state, counts = (
        torch.zeros(size, dtype=dtype, device="cpu") for size, dtype in ((_STATE, torch.int64), (_BINS, torch.int32))
    )
    groups = min(-(-x.numel() // _GROUP), _MOST_GROUPS)
    passes, launches = x.element_size(), []
    for turn in range(passes):
        first, last = turn == 0, turn == passes - 1
        shift = _DIGIT * (passes - 1 - turn)
        launches.append(
            Launch(count, (x, state, counts, x.numel(), shift, first), (groups * _GROUP, 1, 1), (_GROUP, 1, 1))
        )
        launches.append(Launch(pick, (out, state, counts, x.numel(), first, last, ignores_nan), (1,), (1,)))
    return Work((out,), tuple(launches))


def _along(call: Call, ignores_nan: bool) -> Work | None:
    x = call.given["self"]
    dim = sorted_dim(call, x)
    if dim is None or (outs := outs_without(call, x, dim)) is None:
        return None
    values, places = outs
    count = x.shape[dim]
    settings = {"descending": False, "stable": False}
    if not x.is_floating_point():
        return sort_along(call, x, dim, values, places, {**settings, "chosen": ((count - 1) // 2, 1)})
    gather = f"median_gather_{NAMES.get(x.dtype)}"
    moved = x.movedim(dim, -1).contiguous()
    ordered, order = (torch.empty(moved.shape, dtype=dtype, device="cpu") for dtype in (x.dtype, torch.int64))
    work = sort_along(call, moved, moved.dim() - 1, ordered, order, settings)
    last = Launch(gather, (ordered, order, values, places, count, ignores_nan), (moved.numel() // count,))
    return Work((values, places), (*work.launches, last))


def _median(call: Call, ignores_nan: bool) -> Work | None:
    return _along(call, ignores_nan) if "dim" in call.given else _of_all(call, ignores_nan)


MEDIANS: dict[str, Describe] = {
    "median": lambda call: _median(call, ignores_nan=False),
    "nanmedian": lambda call: _median(call, ignores_nan=True),
}
