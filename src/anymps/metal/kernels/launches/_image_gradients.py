"""What flows back through an upsampling, or through a grid.

Source: `UpSample.mm` and `GridSampler.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`, at states with
the arguments that the kernels of torch 2.13's wheel describe. A thread has one place of the gradient that comes in, and
adds to each place that it was read from. Backwards, neighbours (of one and two dimensions) and bilinear images are
MPSGraph's in torch 2.13; in torch 2.15 a thread has a place of their result in a plane, and gathers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.metal.kernels.launches._images import grid_params, resampling_buffers
from anymps.metal.kernels.launches._types import MOST_32, NAMES

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_NEAREST = 1
_GATHERED = (2, 15)
_TILE = (16, 16, 1)  # threads of a group in three dimensions


def _upsample(call: Call, kernel: str, dims: int) -> Work | None:
    gradient, to = call.given["grad_output"], call.given["input_size"]
    if not call.is_read or call.written or call.foreign or not gradient.numel() or 0 in to:
        return None
    name = call.first([f"upsample_{kernel}_backward_{NAMES.get(gradient.dtype)}"])
    if name is None or gradient.dim() != dims + 2:
        return None
    out = torch.zeros(to, dtype=gradient.dtype, device="cpu")
    buffers = resampling_buffers(call, out, gradient, dims)
    launch = Launch(name, buffers, (math.prod(gradient.shape[2:]),))
    return Work((out,), (launch,), kept=True, made=(Made(out, "zeros"),))


def _gathered(call: Call, kernel: str) -> Work | None:
    """Of neighbours and bilinear images in a plane, in torch 2.15."""
    gradient, to = call.given["grad_output"], call.given["input_size"]
    if call.written or call.foreign or not gradient.numel() or 0 in to or gradient.dim() != 4:
        return None
    out = torch.zeros(to, dtype=gradient.dtype, device="cpu")
    small = all(one.numel() <= MOST_32 for one in (gradient, out))
    name = call.first([f"upsample_{kernel}_backward_{NAMES.get(gradient.dtype)}_u{32 if small else 64}"])
    if name is None or call.release < _GATHERED:
        return None
    buffers = resampling_buffers(call, out, gradient, 2)
    launch = Launch(name, buffers, (out.shape[3], out.shape[2], out.shape[0] * out.shape[1]))
    return Work((out,), (launch,), kept=True, made=(Made(out, "zeros"),))


def _params(
    call: Call, given: Sequence[torch.Tensor], to_input: torch.Tensor, to_grid: torch.Tensor, dims: int
) -> dict[str, Any]:
    gradient, x, grid = given
    return {
        "forward": grid_params(gradient, x, grid, dims, call.given["align_corners"]),
        "grad_output_strides": gradient.stride(),
        "grad_input_strides": to_input.stride(),
        "grad_grid_strides": to_grid.stride(),
        "padding_mode": call.given["padding_mode"],
        "interpolation_mode": call.given["interpolation_mode"],
        "compute_grad_input": True,
        "compute_grad_grid": call.given["interpolation_mode"] != _NEAREST,
    }


def _grid(call: Call, dims: int) -> Work | None:
    gradient, x, grid = (call.given[name] for name in ("grad_output", "input", "grid"))
    mode, padding = call.given["interpolation_mode"], call.given["padding_mode"]
    if not call.is_read or call.written or call.foreign or x.dtype != grid.dtype or gradient.dtype != x.dtype:
        return None
    if x.dim() != dims + 2 or not all(one.numel() for one in (gradient, x, grid)) or not call.given["output_mask"][0]:
        return None  # without a gradient of the images the result is no tensor
    to_input = torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    to_grid = torch.zeros(grid.shape, dtype=grid.dtype, device="cpu")
    index = "i32" if all(one.numel() <= MOST_32 for one in (gradient, x, grid)) else "i64"
    of = f"{index}_{NAMES.get(x.dtype)}"
    if dims == 3:
        gradient, x, grid = (one.contiguous() for one in (gradient, x, grid))
    params = _params(call, (gradient, x, grid), to_input, to_grid, dims)
    results = (to_input, to_grid)
    made = tuple(Made(one, "zeros") for one in results)
    if dims == 3:
        name = call.first([f"grid_sampler_3d_backward_{of}"])
        depth, height, width = grid.shape[1:4]
        threads = (width, height * depth, x.shape[0])
        buffers = (gradient, x, grid, to_input, to_grid, params)
        if name is None or mode > _NEAREST:
            return None
        return Work(results, (Launch(name, buffers, threads, _TILE),), kept=True, made=made)
    which = f"grid_sampler_2d_backward_{_MODES[mode]}"
    padded = f"_{_PADDINGS[padding]}" if _MODES[mode] == "bicubic" else ""
    threads_ = (math.prod(grid.shape[:-1]),)
    launches = [Launch(f"{which}_input{padded}_{of}", (to_input, gradient, grid, params), threads_)]
    if mode != _NEAREST:
        launches.append(Launch(f"{which}_grid{padded}_{of}", (to_grid, gradient, x, grid, params), threads_))
    if not call.has_all(launches):
        return None
    return Work(results, tuple(launches), kept=True, made=made)


def _upsampling(kernel: str, dims: int) -> Describe:
    return lambda call: _upsample(call, kernel, dims)


IMAGE_GRADIENTS: dict[str, Describe] = {
    "_upsample_bilinear2d_aa_backward": _upsampling("bilinear2d_aa", 2),
    "_upsample_bicubic2d_aa_backward": _upsampling("bicubic2d_aa", 2),
    "upsample_bilinear2d_backward": lambda call: _gathered(call, "bilinear2d"),
    "upsample_nearest2d_backward": lambda call: _gathered(call, "nearest2d"),
    "_upsample_nearest_exact2d_backward": lambda call: _gathered(call, "nearest_exact2d"),
    "upsample_bicubic2d_backward": _upsampling("bicubic2d", 2),
    "upsample_trilinear3d_backward": _upsampling("trilinear", 3),
    "upsample_nearest3d_backward": _upsampling("nearest_3d", 3),
    "_upsample_nearest_exact3d_backward": _upsampling("nearest_exact_3d", 3),
    "grid_sampler_2d_backward": lambda call: _grid(call, 2),
    "grid_sampler_3d_backward": lambda call: _grid(call, 3),
}
