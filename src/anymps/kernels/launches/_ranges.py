"""Floats at equal distances, of torch 2.15; its whole numbers, and its powers at equal distances, are the CPU's.

Source: the arguments of the kernels in torch 2.15's macOS wheel, what they write, and linspace_out_mps in its
libtorch_cpu. A thread a number; a result of one dimension is told by its stride, another by its sizes and strides, the
innermost first.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import MOST_32, NAMES

_FIRST = 0  # the place of the first number


def _written(call: KernelCall) -> torch.Tensor | None:
    """What a call writes; None if no kernel writes it."""
    if not call.written or call.foreign or not call.written[0].is_floating_point():
        return None
    out = call.written[0]
    return out if 1 <= out.numel() <= MOST_32 and all(one > 0 for one in out.stride()) else None


def _launched(kernel: str, out: torch.Tensor, numbers: list[Any], counts: list[int]) -> Work:
    """`counts` are those of the steps, if the kernel takes them."""
    stride = 1 if out.is_contiguous() else out.stride(0) if out.dim() == 1 else None
    laid = (out.dim(), list(reversed(out.shape)), list(reversed(out.stride())))
    of = NAMES.get(out.dtype)
    name = f"{kernel}_strided_{of}" if stride is None else f"{kernel}_{of}_i32"
    places: tuple[Any, ...] = ([*counts, stride, _FIRST],)
    if stride is None:
        places = ([*counts, _FIRST], *laid) if counts else (*laid, _FIRST)
    return Work((out,), (Launch(name, (out, numbers, *places), (out.numel(),)),))


def _arange(call: KernelCall) -> Work | None:
    out, first, step = _written(call), call.given["start"], call.given["step"]
    if out is None or out.numel() != math.ceil((call.given["end"] - first) / step):
        return None  # the host makes it of that size first
    return _launched("arange", out, [first, step], [])


def _linspace(call: KernelCall) -> Work | None:
    out, first, last, steps = _written(call), *(call.given[name] for name in ("start", "end", "steps"))
    plain = all(type(one) in (int, float) for one in (first, last))
    if out is None or out.numel() != steps or steps < 2 or not plain:
        return None
    ends = torch.tensor([first, last], dtype=torch.float32, device="cpu")
    step = ((ends[1] - ends[0]) / float(steps - 1)).item()  # divided as float32
    return _launched("linspace", out, [first, step, last], [steps])


RANGES: dict[str, Describe] = {"arange": _arange, "linspace": _linspace}
