"""Gradients of pads that repeat or mirror an edge: sums of what flows back to each element.

Source: `Pad.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, at states with the arguments that the
kernels of torch 2.15's macOS wheel describe. In torch 2.13 the repeated edge of one dimension alone has kernels, which
torch 2.15 goes on to use; the other pads are MPSGraph's there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import have_numbers, reach
from anymps.kernels.launches._types import NAMES

_A_THREAD = 4  # elements of the innermost dimension: c10::metal::ILP_PER_THREAD
_DENSE = 3  # dimensions that are padded
_MOST = 1024  # threads of a group
_MOST_29 = 2**29


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return call.is_read and not call.written and not call.foreign and have_numbers(tensors)


def _group(threads: tuple[int, int, int]) -> tuple[int, int, int]:
    """As many threads as a group may have, along the first dimension first."""
    x = min(_MOST, threads[0])
    y = min(_MOST // x, threads[1])
    return x, y, min(_MOST // (x * y), threads[2])


def _line_backward(call: Call) -> Work | None:
    gradient, x, padding = (call.given[name] for name in ("grad_output", "self", "padding"))
    name = f"replication_pad1d_backward_{NAMES.get(x.dtype)}"
    if not _is_plain(call, gradient, x) or x.dim() not in (2, 3) or gradient.dtype != x.dtype:
        return None
    if list(gradient.shape) != [*x.shape[:-1], x.shape[-1] + sum(padding)]:
        return None
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    threads = (x.shape[-1], x.shape[-2], math.prod(x.shape[:-2]))
    buffers = (gradient.contiguous(), out, [x.shape[-1], gradient.shape[-1], *padding])
    return Work((out,), (Launch(name, buffers, threads),), kept=gradient.is_contiguous())


def _padded(x: torch.Tensor, padding: Sequence[int], mirrors: bool) -> list[int] | None:
    """The sizes of an edge repeated or mirrored; None for what the CPU has the words for."""
    dims = len(padding) // 2
    if len(padding) != 2 * dims or x.dim() not in (dims + 1, dims + 2):
        return None
    sizes = list(x.shape)
    for dim in range(dims):
        low, high = padding[2 * dim], padding[2 * dim + 1]
        size = sizes[-1 - dim]
        if min(low, high) <= -size or (mirrors and max(low, high) >= size):
            return None
        sizes[-1 - dim] = size + low + high
    return sizes if min(sizes) > 0 else None


def _edge(call: Call, kind: str, dims: int) -> Work | None:
    source, x, padding = (call.given[name] for name in ("grad_output", "self", "padding"))
    sizes = _padded(x, padding, kind == "reflection") if len(padding) == 2 * dims else None
    if sizes is None or not _is_plain(call, x, source) or source.dtype != x.dtype or list(source.shape) != sizes:
        return None
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    small = all(_reaches(one) <= _MOST_29 for one in (out, source)) and max(map(abs, padding)) < _MOST_29
    name = f"{kind}_pad{dims}d_backward_{NAMES.get(x.dtype)}_{'i32' if small else 'i64'}"
    channels = x.dim() - dims - 1

    def placed(word: str, one: torch.Tensor) -> dict[str, list[int]]:
        """Sizes and strides of what is padded, the innermost first; then the strides of channels and batch."""
        rest = [0] * (_DENSE - dims)
        strides = [*reversed(one.stride()[-dims:]), *rest, one.stride(channels), one.stride(0) if channels else 0]
        return {f"{word}_sizes": [*reversed(one.shape[-dims:]), *(1 for _ in rest)], f"{word}_strides": strides}

    params: dict[str, Any] = {**placed("input", out), **placed("output", source)}
    params |= {"left_pad": [*padding[::2], *[0] * (_DENSE - dims)], "channels": x.shape[channels]}
    width, height = out.shape[-1], out.shape[-2] if dims > 1 else 1
    threads = (-(-width // _A_THREAD), height, out.numel() // (width * height))
    return Work((out,), (Launch(name, (source, out, params), threads, _group(threads)),), kept=True)


def _reaches(tensor: torch.Tensor) -> int:
    """How many elements lie from its first to its last place, or how many it has."""
    return max(reach(tensor), tensor.numel())


def _edges(kind: str, dims: int) -> Describe:
    return lambda call: _edge(call, kind, dims)


PAD_GRADIENTS: dict[str, Describe] = {
    **{
        f"{kind}_pad{dims}d_backward": _edges(kind, dims)
        for kind, ranks in (("reflection", (1, 2, 3)), ("replication", (2, 3)))
        for dims in ranks
    },
    "replication_pad1d_backward": _line_backward,
}
