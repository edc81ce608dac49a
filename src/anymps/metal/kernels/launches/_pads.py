"""Pads: a number around a tensor, its edge repeated, or mirrored.

Source: `Pad.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, at states with the arguments that the
kernels of torch 2.15's macOS wheel describe. In torch 2.13 the repeated edge of one dimension alone has kernels, which
torch 2.15 goes on to use; the other pads are MPSGraph's there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import have_numbers, reach
from anymps.metal.kernels.launches._types import NAMES, UNSIGNED

_A_THREAD = 4  # elements of the innermost dimension: c10::metal::ILP_PER_THREAD
_DENSE = 3  # dimensions that are padded
_MOST_DIMS = 16  # c10::metal::max_ndim
_MOST = 1024  # threads of a group
_MOST_29, _MOST_U32 = 2**29, 2**32 - 1
_WORDS = {**NAMES, **UNSIGNED}
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return call.is_read and not call.written and not call.foreign and have_numbers(tensors)


def _group(threads: tuple[int, int, int]) -> tuple[int, int, int]:
    """As many threads as a group may have, along the first dimension first."""
    x = min(_MOST, threads[0])
    y = min(_MOST // x, threads[1])
    return x, y, min(_MOST // (x * y), threads[2])


def _line(call: Call) -> Work | None:
    x, padding = call.given["self"], call.given["padding"]
    name = f"replication_pad1d_forward_{NAMES.get(x.dtype)}"
    if not _is_plain(call, x) or x.dim() not in (2, 3) or not x.is_contiguous() or len(padding) != 2:
        return None
    width = x.shape[-1] + sum(padding)
    if width < 1:
        return None  # the CPU has the words for it
    out = torch.empty((*x.shape[:-1], width), dtype=x.dtype, device="cpu")
    threads = (width, x.shape[-2], math.prod(x.shape[:-2]))
    return Work((out,), (Launch(name, (x, out, [x.shape[-1], width, *padding]), threads),), kept=True)


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


def _edge(call: Call, kind: str, dims: int, backward: bool) -> Work | None:
    x, padding = call.given["self"], call.given["padding"]
    source = call.given["grad_output"] if backward else x
    sizes = _padded(x, padding, kind == "reflection") if len(padding) == 2 * dims else None
    if sizes is None or not _is_plain(call, x, source) or source.dtype != x.dtype:
        return None
    if backward and list(source.shape) != sizes:
        return None
    out = torch.empty(x.shape if backward else sizes, dtype=x.dtype, device="cpu")
    inner, outer = (out, source) if backward else (source, out)
    small = all(_reaches(one) <= _MOST_29 for one in (inner, outer)) and max(map(abs, padding)) < _MOST_29
    direction, index = "backward" if backward else "forward", "i32" if small else "i64"
    name = f"{kind}_pad{dims}d_{direction}_{NAMES.get(x.dtype)}_{index}"
    channels = x.dim() - dims - 1

    def placed(word: str, one: torch.Tensor) -> dict[str, list[int]]:
        """Sizes and strides of what is padded, the innermost first; then the strides of channels and batch."""
        rest = [0] * (_DENSE - dims)
        strides = [*reversed(one.stride()[-dims:]), *rest, one.stride(channels), one.stride(0) if channels else 0]
        return {f"{word}_sizes": [*reversed(one.shape[-dims:]), *(1 for _ in rest)], f"{word}_strides": strides}

    params: dict[str, Any] = {**placed("input", inner), **placed("output", outer)}
    params |= {"left_pad": [*padding[::2], *[0] * (_DENSE - dims)], "channels": x.shape[channels]}
    width, height = out.shape[-1], out.shape[-2] if dims > 1 else 1
    threads = (-(-width // _A_THREAD), height, out.numel() // (width * height))
    return Work((out,), (Launch(name, (source, out, params), threads, _group(threads)),), kept=True)


def _reaches(tensor: torch.Tensor) -> int:
    """How many elements lie from its first to its last place, or how many it has."""
    return max(reach(tensor), tensor.numel())


def _cropped(x: torch.Tensor, pad: Sequence[int]) -> torch.Tensor | None:
    """What negative pads leave of a tensor; None if there is nothing, or less."""
    for at, (low, high) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        first, last = max(0, -low), x.shape[-1 - at] - max(0, -high)
        if first >= last:
            return None
        x = x.narrow(x.dim() - 1 - at, first, last - first)
    return x


def _room(x: torch.Tensor, cropped: torch.Tensor, pad: Sequence[int]) -> torch.Tensor | None:
    """Memory for the result, with the channels last where the operand has them so; None if that is not plain."""
    if max(pad) <= 0:
        return torch.empty_like(cropped)
    sizes = list(x.shape)
    for at in range(len(pad) // 2):
        sizes[-1 - at] += pad[2 * at] + pad[2 * at + 1]
    last = _LAST.get(x.dim())
    if last is None or x.is_contiguous():
        return torch.empty(sizes, dtype=x.dtype, device="cpu")
    if x.is_contiguous(memory_format=last):
        return torch.empty(sizes, dtype=x.dtype, device="cpu", memory_format=last)
    if x.stride(1) <= x.stride(-1):
        return None  # by the order of its strides PyTorch may take it for one with the channels last
    return torch.empty(sizes, dtype=x.dtype, device="cpu")


def _number(value: Any, dtype: torch.dtype) -> Any:
    """The number as that dtype has it; None if it cannot hold it."""
    try:
        return torch.full((1,), value, dtype=dtype, device="cpu").item()
    except RuntimeError:
        return None


def _constant(call: Call) -> Work | None:
    x, pad = call.given["self"], list(call.given["pad"])
    if not pad or len(pad) % 2 or len(pad) > 2 * x.dim() or not _is_plain(call, x) or x.is_conj() or x.is_neg():
        return None
    crops, cropped = max(pad) <= 0, _cropped(x, pad)
    if cropped is None or (crops and cropped.is_contiguous()):
        return None  # a fill, or a copy
    out = _room(x, cropped, pad)
    fill = _number(0 if crops else call.given["value"], x.dtype)
    if out is None or fill is None:
        return None
    dims, left = len(pad) // 2, [max(0, one) for one in pad[::2]]
    if dims <= _DENSE and cropped.is_contiguous() and out.is_contiguous():
        name = f"constant_pad_nd_dense_{_WORDS.get(x.dtype)}"
        more = [1] * (_DENSE - dims)
        inner, outer = ([*reversed(one.shape[-dims:]), *more] for one in (cropped, out))
        params: dict[str, Any] = {"input_sizes": inner, "output_sizes": outer, "left_pad": left + [0] * len(more)}
        threads = (-(-outer[0] // _A_THREAD), outer[1], out.numel() // (outer[0] * outer[1]))
        return Work((out,), (Launch(name, (cropped, out, params, fill), threads, _group(threads)),))
    order = sorted(range(out.dim()), key=out.stride)
    index = "u32" if all(_reaches(one) <= _MOST_U32 for one in (cropped, out)) else "u64"
    name = f"constant_pad_nd_{_WORDS.get(x.dtype)}_{index}"
    if out.dim() > _MOST_DIMS or out.numel() > _MOST_U32:
        return None
    left += [0] * (out.dim() - dims)
    params = {"ndim": out.dim(), "left_pad": [left[out.dim() - 1 - dim] for dim in order]}
    for word, one in (("output", out), ("input", cropped)):
        params |= {f"{word}_sizes": [one.shape[dim] for dim in order]}
        params |= {f"{word}_strides": [one.stride(dim) for dim in order]}
    wide = -(-out.shape[order[0]] // _A_THREAD)
    grid = (wide, out.numel() // out.shape[order[0]])
    return Work((out,), (Launch(name, (cropped, out, params, fill), grid, (min(wide, _MOST), 1)),))


def _edges(kind: str, dims: int, backward: bool) -> Describe:
    return lambda call: _edge(call, kind, dims, backward)


PADS: dict[str, Describe] = {
    "constant_pad_nd": _constant,
    **{
        f"{kind}_pad{dims}d{'_backward' * backward}": _edges(kind, dims, backward)
        for kind, ranks in (("reflection", (1, 2, 3)), ("replication", (2, 3)))
        for dims in ranks
        for backward in (False, True)
    },
    "replication_pad1d": _line,
    "replication_pad1d_backward": _line_backward,
}
