"""Images of another size, and images read at the places of a grid; and what flows back.

Source: `UpSample.mm` and `GridSampler.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, at states with
the arguments that the kernels of torch 2.13's wheel describe. A thread has one place of the result, for all images and
channels of an upsampling, for all channels of a grid in two dimensions. The nearest neighbours of one and two
dimensions are MPSGraph's.

Backwards, a thread has one place of the gradient that comes in, and adds to each place that it was read from;
neighbours (of one and two dimensions) and bilinear images are MPSGraph's in torch 2.13; in torch 2.15 a thread has a
place of their result in a plane, and gathers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import MOST_32, NAMES, laid

_STRUCTS = (2, 15)  # `UpSample.h` of the wheel: one struct for images of any dimensions
_SCALES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}
_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_NEAREST = 1
_GATHERED = (2, 15)
_TILE = (16, 16, 1)  # threads of a group in three dimensions


def _single(value: float) -> float:
    """The nearest number of 32 bits."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _scale_of(size: int, to: int, align: bool, given: float | None) -> float:
    """How far apart in the image two neighbours of the result lie."""
    if align:
        return _single((size - 1) / (to - 1)) if to > 1 else 0.0
    return _single(1.0 / given if given is not None and given > 0 else size / to)


def _memory_format(x: torch.Tensor) -> torch.memory_format:
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim(), torch.contiguous_format)
    return last if not x.is_contiguous() and x.is_contiguous(memory_format=last) else torch.contiguous_format


def resampling_buffers(call: KernelCall, image: torch.Tensor, result: torch.Tensor, dims: int) -> tuple[Any, ...]:
    """What the kernels of an upsampling take: both tensors, how they lie, and the scales, the width's first.

    In the backward these are the image's gradient and that of the result.
    """
    align = bool(call.given.get("align_corners"))
    settings = zip(image.shape[2:], result.shape[2:], _SCALES[dims], strict=True)
    scales = [_scale_of(old, new, align, call.given[word]) for old, new, word in settings][::-1]
    shapes: dict[str, Sequence[int]] = {
        "input_strides": image.stride(),
        "output_strides": result.stride(),
        "input_sizes": list(image.shape),
        "output_sizes": list(result.shape),
    }
    if dims == 3 or call.release >= _STRUCTS:
        return (image, result, {**shapes, "scales": scales, "align_corners": align})
    return (image, result, *shapes.values(), scales * (3 - dims), align)


def _upsample(call: KernelCall, kernel: str, dims: int) -> Work | None:
    x, size = call.given.get("self"), call.given.get("output_size")
    if not call.is_read or call.written or call.foreign or x is None or size is None or x.dim() != dims + 2:
        return None
    name = f"upsample_{kernel}_{NAMES.get(x.dtype)}"
    if not x.numel() or min(size) <= 0:
        return None
    room = torch.empty((*x.shape[:2], *size), dtype=x.dtype, device="cpu", memory_format=_memory_format(x))
    out = call.note(room, "room")
    buffers = resampling_buffers(call, x, out, dims)
    return Work((out,), (Launch(name, buffers, (math.prod(size),)),))


def _grid_sampler(call: KernelCall, dims: int) -> Work | None:
    x, grid = call.given["input"], call.given["grid"]
    mode, padding = call.given["interpolation_mode"], call.given["padding_mode"]
    if not call.is_read or call.written or call.foreign or x.dtype != grid.dtype or x.dim() != dims + 2:
        return None
    out = call.empty((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    small = all(one.numel() <= MOST_32 for one in (x, grid, out))
    name = f"grid_sampler_{dims}d_{_MODES[mode]}_{_PADDINGS[padding]}_{'i32' if small else 'i64'}_{NAMES.get(x.dtype)}"
    if not x.numel() or not out.numel():
        return None
    params = {
        "sampler_dims": dims,
        "align_corners": call.given["align_corners"],
        **laid(output=out, input=x, grid=grid),
    }
    threads = math.prod(grid.shape[:-1]) if dims == 2 else out.numel()
    launch = Launch(name, (out, x, grid, params), (threads,))
    return Work((out,), (launch,))


def _upsample_backward(call: KernelCall, kernel: str, dims: int, gathers: bool = False) -> Work | None:
    """What a thread adds to the places that were read, or gathers for a place of the result."""
    gradient, to = call.given["grad_output"], call.given["input_size"]
    if not (call.release >= _GATHERED if gathers else call.is_read) or gradient.dim() != dims + 2:
        return None
    if call.written or call.foreign or not gradient.numel() or 0 in to:
        return None
    out = call.zeros(to, gradient.dtype)
    name = f"upsample_{kernel}_backward_{NAMES.get(gradient.dtype)}"
    threads: tuple[int, ...] = (math.prod(gradient.shape[2:]),)
    if gathers:
        name += "_u32" if all(one.numel() <= MOST_32 for one in (gradient, out)) else "_u64"
        threads = (out.shape[3], out.shape[2], out.shape[0] * out.shape[1])
    return Work((out,), (Launch(name, resampling_buffers(call, out, gradient, dims), threads),))


def _grid_sampler_backward(call: KernelCall, dims: int) -> Work | None:
    gradient, x, grid = (call.given[name] for name in ("grad_output", "input", "grid"))
    mode, padding = call.given["interpolation_mode"], call.given["padding_mode"]
    if not call.is_read or call.written or call.foreign or x.dtype != grid.dtype or gradient.dtype != x.dtype:
        return None
    if x.dim() != dims + 2 or not all(one.numel() for one in (gradient, x, grid)) or not call.given["output_mask"][0]:
        return None  # without a gradient of the images the result is no tensor
    to_input = call.zeros(x.shape, x.dtype)
    to_grid = call.zeros(grid.shape, grid.dtype)
    index = "i32" if all(one.numel() <= MOST_32 for one in (gradient, x, grid)) else "i64"
    of = f"{index}_{NAMES.get(x.dtype)}"
    if dims == 3:
        gradient, x, grid = (one.contiguous() for one in (gradient, x, grid))
    forward = {"sampler_dims": dims, "align_corners": call.given["align_corners"]}
    params = {
        "forward": {**forward, **laid(output=gradient, input=x, grid=grid)},
        "grad_output_strides": gradient.stride(),
        "grad_input_strides": to_input.stride(),
        "grad_grid_strides": to_grid.stride(),
        "padding_mode": padding,
        "interpolation_mode": mode,
        "compute_grad_input": True,
        "compute_grad_grid": mode != _NEAREST,
    }
    results = (to_input, to_grid)
    if dims == 3:
        name = f"grid_sampler_3d_backward_{of}"
        depth, height, width = grid.shape[1:4]
        threads = (width, height * depth, x.shape[0])
        buffers = (gradient, x, grid, to_input, to_grid, params)
        if mode > _NEAREST:
            return None
        return Work(results, (Launch(name, buffers, threads, _TILE),))
    which = f"grid_sampler_2d_backward_{_MODES[mode]}"
    padded = f"_{_PADDINGS[padding]}" if _MODES[mode] == "bicubic" else ""
    threads_ = (math.prod(grid.shape[:-1]),)
    launches = [Launch(f"{which}_input{padded}_{of}", (to_input, gradient, grid, params), threads_)]
    if mode != _NEAREST:
        launches.append(Launch(f"{which}_grid{padded}_{of}", (to_grid, gradient, x, grid, params), threads_))
    return Work(results, tuple(launches))


def _of(describe: Callable[..., Work | None], kernel: str, dims: int, **more: bool) -> Describe:
    return partial(describe, kernel=kernel, dims=dims, **more)


RESAMPLING: dict[str, Describe] = {
    "upsample_linear1d": _of(_upsample, "linear1d", 1),
    "upsample_trilinear3d": _of(_upsample, "trilinear", 3),
    **{f"upsample_{name}": _of(_upsample, name, 2) for name in ("bilinear2d", "bicubic2d")},
    **{f"_upsample_{name}": _of(_upsample, name, 2) for name in ("bilinear2d_aa", "bicubic2d_aa")},
    **{f"_upsample_{name}_backward": _of(_upsample_backward, name, 2) for name in ("bilinear2d_aa", "bicubic2d_aa")},
    **{
        f"{name}_backward": _of(_upsample_backward, name.partition("upsample_")[2], 2, gathers=True)
        for name in ("upsample_bilinear2d", "upsample_nearest2d", "_upsample_nearest_exact2d")
    },
    "upsample_bicubic2d_backward": _of(_upsample_backward, "bicubic2d", 2),
    "upsample_trilinear3d_backward": _of(_upsample_backward, "trilinear", 3),
    "upsample_nearest3d_backward": _of(_upsample_backward, "nearest_3d", 3),
    "_upsample_nearest_exact3d_backward": _of(_upsample_backward, "nearest_exact_3d", 3),
    **{f"grid_sampler_{dims}d": partial(_grid_sampler, dims=dims) for dims in (2, 3)},
    **{f"grid_sampler_{dims}d_backward": partial(_grid_sampler_backward, dims=dims) for dims in (2, 3)},
}
