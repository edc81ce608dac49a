"""How many numbers fall between two edges.

Source: `aten/src/ATen/native/mps/operations/HistogramKernel.mm` of the pytorch tree, at a state with the arguments that
the kernels of torch 2.13's wheel describe. A thread has a number and a histogram of its own; the histograms are summed
by the kernels of `sum`. The host reads all edges before it launches. Torch 2.15 does so with weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from anymps.kernels.launches._call import READ, Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES
from anymps.kernels.launches._split_reductions import REDUCTIONS

_READ = (2, 13)
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


def _counted(call: KernelCall, x: torch.Tensor, edges: torch.Tensor | None, weight: Any, how: int) -> Work | None:
    """The launches of one dimension, and then the sum."""
    if call.written or call.foreign or edges is None or not x.numel() or edges.numel() < 2:
        return None
    if call.given.get("density") or edges.dtype != x.dtype:
        return None
    if weight is not None and (weight.dtype != x.dtype or weight.numel() != x.numel()):
        return None
    name, rows = f"histogramdd_{NAMES.get(x.dtype)}", x.reshape(-1, 1)
    each = None if weight is None else weight.reshape(-1)
    own = call.zeros((rows.shape[0], edges.numel() - 1), x.dtype)
    apart, threads = -1 if each is None else each.stride(0), (rows.shape[0],)
    launches: tuple[Launch, ...]
    if call.release == _READ:
        offsets, places = call.empty([rows.numel()], torch.int32), edges.tolist()
        settings = ([len(places)], [places[0]], [places[-1]], own.stride(), how, apart)
        launches = (
            Launch("kernel_index_offset", (rows.stride(), offsets, list(rows.shape), 2), (rows.numel(),)),
            Launch(name, (rows, each, own, offsets, 1, places, *settings), threads),
        )
    else:
        buffers = (rows, each, own, rows.stride(), 1, edges.contiguous(), [edges.numel()], own.stride(), how, apart)
        launches = (Launch(name, buffers, threads),)
    summed = REDUCTIONS["sum"](replace(call, given={"self": own, "dim": [0], "keepdim": False, "dtype": x.dtype}))
    return None if summed is None else Work(summed.results, (*launches, *summed.launches))


def _histc(call: KernelCall) -> Work | None:
    x, bins = call.given["self"], call.given["bins"]
    if call.release != _READ or bins <= 0 or not x.numel() or x.is_complex() or x.dtype == torch.bool:
        return None
    edges = _even(x, bins, float(call.given["min"]), float(call.given["max"]), 1.0)
    return _counted(call, x, edges, None, _EVEN)


def _histogram(call: KernelCall) -> Work | None:
    x, bins, weight = (call.given[name] for name in ("self", "bins", "weight"))
    if call.release not in READ or x.dtype != torch.float32 or not x.numel():
        return None
    if call.release > _READ and weight is None:
        return None  # counted in one histogram, which gives the CPU's numbers
    if isinstance(bins, torch.Tensor):
        edges: torch.Tensor | None = bins.clone()
    else:
        low, high = call.given["range"] or (0.0, 0.0)
        edges = _even(x, bins, float(low), float(high), 0.5) if bins > 0 else None
    work = _counted(call, x, edges, weight, _SEARCHED if isinstance(bins, torch.Tensor) else _EVEN_CHECKED)
    return None if work is None or edges is None else replace(work, results=(*work.results, edges))


HISTOGRAMS: dict[str, Describe] = {"histc": _histc, "histogram": _histogram}
