"""What flows back through windows and edges, and windows of an adaptive pool.

Sources, of the pytorch tree's `aten/src/ATen/native/mps/operations`: `Col2Im.mm`, `UnfoldBackward.mm` and `Pad.mm`, at
states with the arguments that the kernels of torch 2.13's wheel describe, or those of torch 2.15's. In torch 2.13 the
repeated edge of one dimension alone has kernels, which torch 2.15 goes on to use; the other pads are MPSGraph's there.
Of pools: `ATen/native/mps/kernels/Pooling.h` of torch 2.13's wheel; a thread an element of the gradient adds to each
place of its window. The backward of a mean in two dimensions is MPSGraph's in torch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, laid, of_each_dimension, reach

_LANES, _MOST = 32, 1024  # of a SIMD group; threads of a group
_A_THREAD = 4  # elements of the innermost dimension: c10::metal::ILP_PER_THREAD
_DENSE = 3  # dimensions that are padded
_MOST_29 = 2**29
_SPACE = 3  # dimensions of a pool


def _windows(call: KernelCall, height: int, width: int) -> list[int] | None:
    """How many windows there are along each dimension; None if the settings are not those of two."""
    found = []
    for at, size in enumerate((height, width)):
        settings = [call.given[name] for name in ("kernel_size", "dilation", "padding", "stride")]
        if any(len(one) != 2 for one in settings) or settings[3][at] <= 0:
            return None
        kernel, dilation, padding, stride = (int(one[at]) for one in settings)
        found.append((size + 2 * padding - (dilation * (kernel - 1) + 1)) // stride + 1)
    return found if min(found) > 0 else None


def _col2im(call: KernelCall) -> Work | None:
    x, (height, width) = call.given["self"], call.given["output_size"]
    windows = _windows(call, height, width) if x.dim() in (2, 3) else None
    name = f"col2im_kernel_{NAMES.get(x.dtype)}_u32"
    if not call.is_read_or_older or windows is None or not call.makes(x):
        return None
    kernel, dilation, padding, stride = (call.given[one] for one in ("kernel_size", "dilation", "padding", "stride"))
    columns = x if x.dim() == 3 else x.unsqueeze(0)
    batch, planes = columns.shape[0], columns.shape[1] // (kernel[0] * kernel[1])
    if columns.shape[1] % (kernel[0] * kernel[1]) or columns.shape[2] != windows[0] * windows[1]:
        return None
    out = call.empty((batch, planes, height, width), x.dtype)
    first, *inner = columns.stride()
    settings = [list(one) for one in ((height, width), kernel, padding, stride, dilation, windows)]
    across = min(width, _LANES)
    group = (across, min(height, _MOST // across), 1)
    buffers = (x, out, first, planes, *settings, out.stride(0), inner)
    launch = Launch(name, buffers, (width, height, batch * planes), group)
    return Work((out if x.dim() == 3 else out.squeeze(0),), (launch,))


def _unfold_backward(call: KernelCall) -> Work | None:
    gradient, shape = call.given["grad_in"], call.given["input_sizes"]
    name = f"unfold_backward_{NAMES.get(gradient.dtype)}"
    if not call.is_read or not call.makes(gradient) or not shape or 0 in shape:
        return None
    out = call.zeros(shape, gradient.dtype)
    settings = [call.given["dim"] % len(shape), call.given["size"], call.given["step"], len(shape)]
    buffers = (gradient, out, gradient.stride(), list(shape), out.stride(), settings)
    return Work((out,), (Launch(name, buffers, (out.numel(),)),))


def _group(threads: tuple[int, int, int]) -> tuple[int, int, int]:
    """As many threads as a group may have, along the first dimension first."""
    x = min(_MOST, threads[0])
    y = min(_MOST // x, threads[1])
    return x, y, min(_MOST // (x * y), threads[2])


def _line_backward(call: KernelCall) -> Work | None:
    gradient, x, padding = (call.given[name] for name in ("grad_output", "self", "padding"))
    name = f"replication_pad1d_backward_{NAMES.get(x.dtype)}"
    if not call.is_read or not call.makes(gradient, x) or x.dim() not in (2, 3) or gradient.dtype != x.dtype:
        return None
    if list(gradient.shape) != [*x.shape[:-1], x.shape[-1] + sum(padding)]:
        return None
    out = call.empty(x.shape, x.dtype)
    threads = (x.shape[-1], x.shape[-2], math.prod(x.shape[:-2]))
    buffers = (gradient.contiguous(), out, [x.shape[-1], gradient.shape[-1], *padding])
    return Work((out,), (Launch(name, buffers, threads),))


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


def _edge(call: KernelCall, kind: str, dims: int) -> Work | None:
    source, x, padding = (call.given[name] for name in ("grad_output", "self", "padding"))
    sizes = _padded(x, padding, kind == "reflection") if len(padding) == 2 * dims else None
    if sizes is None or not call.is_read or not call.makes(x, source):
        return None
    if source.dtype != x.dtype or list(source.shape) != sizes:
        return None
    out = call.empty(x.shape, x.dtype)
    reaches = [max(reach(one), one.numel()) for one in (out, source)]
    small = max(reaches) <= _MOST_29 and max(map(abs, padding)) < _MOST_29
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
    return Work((out,), (Launch(name, (source, out, params), threads, _group(threads)),))


def _avg_pool_backward(call: KernelCall) -> Work | None:
    gradient, x = call.given["grad_output"], call.given["self"]
    name = f"avg_pool_backward_{NAMES.get(x.dtype)}"
    if not call.is_read_or_older or not call.makes(gradient, x) or gradient.dtype != x.dtype:
        return None
    out = call.zeros(x.shape, x.dtype)
    size, stride, padding = (of_each_dimension(call.given[one], _SPACE) for one in ("kernel_size", "stride", "padding"))
    divisor = call.given["divisor_override"]
    params: dict[str, Any] = {"dims": x.dim(), "pooling_dims": _SPACE}
    params |= laid(input=out, output=gradient)
    params |= {"kernel_size": size, "stride": stride or size, "padding": padding}
    params |= {"count_include_pad": call.given["count_include_pad"]}
    params |= {"has_divisor_override": divisor is not None, "divisor_override": divisor or 0}
    launch = Launch(name, (out, gradient, params), (gradient.numel(),))
    return Work((out,), (launch,))


def _adaptive_max_pool2d(call: KernelCall) -> Work | None:
    x, size = call.given["self"], call.given["output_size"]
    sizes: Sequence[int] = x.shape[-2:]
    if not call.is_read_or_older or not call.makes(x) or x.dim() not in (3, 4):
        return None
    if any(large < small or small <= 0 for large, small in zip(sizes, size, strict=True)):
        return None
    name = f"max_pool_{NAMES.get(x.dtype)}"
    strides = [large // small for large, small in zip(sizes, size, strict=True)]
    windows = [large - (small - 1) * step for large, small, step in zip(sizes, size, strides, strict=True)]
    out = call.empty((*x.shape[:-2], *size), x.dtype)
    places = call.empty(out.shape, torch.int64)
    params: dict[str, Any] = {
        "dims": x.dim(),
        "pooling_dims": 2,
        "kernel_size": windows,
        "stride": strides,
        "padding": [0, 0],
        "dilation": [1, 1],
        "return_indices": True,
    }
    if call.release > (2, 13):  # the kernel then finds each window's ends itself: wheels of torch 2.14.1 and 2.15.0
        params["adaptive"] = True
    params |= laid(input=x, output=out, indices=places)
    return Work((out, places), (Launch(name, (x, out, places, params), (out.numel(),)),))


WINDOWS: dict[str, Describe] = {
    "col2im": _col2im,
    "unfold_backward": _unfold_backward,
    "replication_pad1d_backward": _line_backward,
    **{
        f"{kind}_pad{dims}d_backward": partial(_edge, kind=kind, dims=dims)
        for kind in ("reflection", "replication")
        for dims in (2, 3)
    },
    "avg_pool3d_backward": _avg_pool_backward,
    "adaptive_max_pool2d": _adaptive_max_pool2d,
}
