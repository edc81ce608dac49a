"""How many numbers fall between two edges.

Source: `aten/src/ATen/native/mps/operations/HistogramKernel.mm` of the pytorch tree, at a state with the arguments that
the kernels of torch 2.13's wheel describe. A thread has a number and a histogram of its own; the histograms are summed
by the kernels of `sum`. The host reads all edges before it launches. Torch 2.15 counts in one histogram;
for more bins than threadgroup memory holds a kernel does that needs none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._reductions import REDUCTIONS
from anymps.kernels.launches._split_reductions import SPLIT_REDUCTIONS
from anymps.kernels.launches._types import NAMES

_READ = (2, 13)
_ATOMIC = (2, 15)
_SHARED = 8192 // 4  # bins of four bytes in the threadgroup memory that the host gives them
_EVEN, _EVEN_CHECKED, _SEARCHED = range(3)  # how a bin is found


def _even(x: torch.Tensor, bins: int, low: float, high: float, around: float) -> torch.Tensor | None:
    """Edges at equal distances, over the range of the numbers if none is given, or around the only number there is.

    None for a range that is refused.
    """
    if low == high == 0:
        low, high = (float(one) for one in x.aminmax())
    if low == high:
        low, high = low - around, high + around
    finite = all(abs(one) < float("inf") for one in (low, high))
    return torch.linspace(low, high, bins + 1, dtype=x.dtype, device="cpu") if finite and low < high else None


def _counted(call: Call, x: torch.Tensor, edges: torch.Tensor | None, weight: Any, how: int) -> Work | None:
    """The launches of one dimension, and then the sum."""
    if call.release >= _ATOMIC:
        return _counted_at_once(call, x, edges, weight, how)
    if call.release != _READ or call.written or call.foreign or edges is None or not x.numel() or edges.numel() < 2:
        return None
    name = f"histogramdd_{NAMES.get(x.dtype)}"
    if call.given.get("density") or edges.dtype != x.dtype:
        return None
    if weight is not None and (weight.dtype != x.dtype or weight.numel() != x.numel()):
        return None
    rows = x.reshape(-1, 1)
    each = None if weight is None else weight.reshape(-1)
    own = torch.zeros((rows.shape[0], edges.numel() - 1), dtype=x.dtype, device="cpu")
    offsets = torch.empty(rows.numel(), dtype=torch.int32, device="cpu")
    places = edges.tolist()
    settings = ([len(places)], [places[0]], [places[-1]], own.stride(), how, -1 if each is None else each.stride(0))
    launches = (
        Launch("kernel_index_offset", (rows.stride(), offsets, list(rows.shape), 2), (rows.numel(),)),
        Launch(name, (rows, each, own, offsets, 1, places, *settings), (rows.shape[0],)),
    )
    summed = REDUCTIONS["sum"](replace(call, given={"self": own, "dim": [0], "keepdim": False, "dtype": x.dtype}))
    return None if summed is None else Work(summed.results, (*launches, *summed.launches))


def _counted_at_once(
    call: Call, x: torch.Tensor, edges: torch.Tensor | None, weight: torch.Tensor | None, how: int
) -> Work | None:
    """Without weights into one histogram; with weights each thread has its own, as before torch 2.15."""
    if call.written or call.foreign or edges is None or not x.numel() or edges.numel() < 2 or call.given.get("density"):
        return None
    if weight is not None and (weight.dtype != x.dtype or weight.numel() != x.numel()):
        return None
    name = f"histogramdd_{'atomic_' if weight is None else ''}{NAMES.get(x.dtype)}"
    if edges.dtype != x.dtype:
        return None
    rows, bins = x.reshape(-1, 1), edges.numel() - 1
    settings = (rows.stride(), 1, edges.contiguous(), [bins + 1])
    if weight is None:
        counts = torch.zeros(bins, dtype=torch.uint32, device="cpu")
        out = torch.empty(bins, dtype=x.dtype, device="cpu")
        launch = Launch(name, (rows, counts, *settings, counts.stride(), how), (rows.shape[0],))
        return Work((out,), (launch,), copies=((out, counts),))
    each = weight.reshape(-1)
    own = torch.zeros((rows.shape[0], bins), dtype=x.dtype, device="cpu")
    launch = Launch(name, (rows, each, own, *settings, own.stride(), how, each.stride(0)), (rows.shape[0],))
    summed = SPLIT_REDUCTIONS["sum"](replace(call, given={"self": own, "dim": [0], "keepdim": False, "dtype": x.dtype}))
    return None if summed is None else Work(summed.results, (launch, *summed.launches))


def _histc(call: Call) -> Work | None:
    x, bins = call.given["self"], call.given["bins"]
    if bins <= 0 or not x.numel() or x.is_complex() or x.dtype == torch.bool:
        return None
    edges = _even(x, bins, float(call.given["min"]), float(call.given["max"]), 1.0)
    if call.release >= _ATOMIC:
        return _atomic(call, x, bins, edges)
    return _counted(call, x, edges, None, _EVEN)


def _atomic(call: Call, x: torch.Tensor, bins: int, edges: torch.Tensor | None) -> Work | None:
    """All threads add to one histogram, which is then copied in the dtype of the numbers."""
    name = f"histc_atomic_global_{NAMES.get(x.dtype)}"
    if call.written or call.foreign or edges is None or bins <= _SHARED:
        return None
    numbers = x.reshape(-1)
    counts = torch.zeros(bins, dtype=torch.uint32, device="cpu")
    out = torch.empty(bins, dtype=x.dtype, device="cpu")
    buffers = (numbers, counts, numbers.stride(0), numbers.numel(), bins, edges)
    return Work((out,), (Launch(name, buffers, (numbers.numel(),)),), copies=((out, counts),))


def _histogram(call: Call) -> Work | None:
    x, bins, weight = (call.given[name] for name in ("self", "bins", "weight"))
    if x.dtype != torch.float32 or not x.numel():
        return None
    if isinstance(bins, torch.Tensor):
        edges: torch.Tensor | None = bins.clone()
    else:
        low, high = call.given["range"] or (0.0, 0.0)
        edges = _even(x, bins, float(low), float(high), 0.5) if bins > 0 else None
    work = _counted(call, x, edges, weight, _SEARCHED if isinstance(bins, torch.Tensor) else _EVEN_CHECKED)
    return None if work is None or edges is None else replace(work, results=(*work.results, edges))


HISTOGRAMS: dict[str, Describe] = {"histc": _histc, "histogram": _histogram}
