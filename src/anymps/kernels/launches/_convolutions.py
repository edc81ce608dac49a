"""Convolutions that torch 2.15 keeps from MPSGraph: along one dimension, of volumes, and with very long kernels.

Source: `aten/src/ATen/native/mps/operations/Convolution.mm` and `ConvolutionHeuristics.cpp` of the pytorch tree, and
_mps_convolution_impl, conv1d_metal_forward and conv3d_metal_forward in libtorch_cpu of torch 2.15's macOS wheel, for
chips without units for tensors. Of kernels of 256 or more in one dimension of images, the host says that MPSGraph
computes them wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work, empty
from anymps.kernels.launches._elements import MOST_32, NAMES, of_each_dimension

_LARGE = 256
_BLOCKED = 32_768
"""From so many threads on each computes four neighbours."""
_NEIGHBOURS = 8
_FEW = 64  # of the results or of the channels of one input channel
_LONG_SUM, _SUMS_A_RESULT = 2048, 32
"""From so many numbers of a kernel, and so many times more of them than results, on, MPSGraph multiplies."""
_SMALL_PLANE = 48
_PATCH, _FEW_RESULTS, _LONG_PATCH = 256, 256, 4096
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Convolution:
    """A call, with its steps for each dimension of space."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def sizes(self) -> list[int]:
        """Of the result's space."""
        return [
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, pad, dilation in zip(
                self.x.shape[2:], self.weight.shape[2:], self.stride, self.padding, self.dilation, strict=True
            )
        ]

    def with_space(self, dims: int) -> _Convolution:
        """The same over more dimensions, of one element each, before its own."""
        more = dims - len(self.stride)
        x, weight = (one.reshape(*one.shape[:2], *[1] * more, *one.shape[2:]) for one in (self.x, self.weight))
        ones, none = (1,) * more, (0,) * more
        return _Convolution(
            x, weight, self.bias, ones + self.stride, none + self.padding, ones + self.dilation, self.groups
        )

    def params(self) -> dict[str, Any]:
        """What all kernels get of the last two dimensions."""
        out = self.sizes
        pairs = ((self.weight.shape[2:], "k"), (self.stride, "s"), (self.padding, "pad"), (self.dilation, "d"))
        return {
            "N": self.x.shape[0],
            "C_in": self.x.shape[1],
            "C_out": self.weight.shape[0],
            "H": self.x.shape[-2],
            "W": self.x.shape[-1],
            "outH": out[-2],
            "outW": out[-1],
            **{f"{word}{axis}": values[at] for values, word in pairs for at, axis in ((-2, "H"), (-1, "W"))},
            "C_in_per_group": self.weight.shape[1],
            "C_out_per_group": self.weight.shape[0] // self.groups,
            "has_bias": self.bias is not None,
        }


def _given(call: KernelCall) -> _Convolution | None:
    x, weight, bias = (call.given[name] for name in ("input", "weight", "bias"))
    if not call.makes(x, weight) or call.given["transposed"] or weight.dtype != x.dtype or x.dtype not in _DTYPES:
        return None
    if bias is not None and bias.dtype != x.dtype:
        return None
    dims = x.dim() - 2
    if dims < 1:
        return None
    stride, padding, dilation = (
        of_each_dimension(call.given[name], dims) for name in ("stride", "padding", "dilation")
    )
    made = _Convolution(x, weight, bias, stride, padding, dilation, call.given["groups"])
    return made if min(made.sizes) >= 1 else None


def _large(made: _Convolution) -> Work:
    sizes, x, weight, bias = made.sizes, made.x, made.weight, made.bias
    out = empty((x.shape[0], weight.shape[0], *sizes), x.dtype)
    blocked = out.numel() // sizes[1] * -(-sizes[1] // 4)
    four = blocked >= _BLOCKED
    small = all(one.numel() <= MOST_32 for one in (x, weight, out))
    name = f"conv2d_r{4 if four else 1}_i{32 if small else 64}_{NAMES[x.dtype]}"
    given = (x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous(), out, made.params())
    return Work((out,), (Launch(name, given, (blocked if four else out.numel(),)),))


def _result(made: _Convolution) -> tuple[torch.Tensor, bool] | None:
    """Room of the layout of the input, and whether channels come before space; None for other layouts."""
    shape = (made.x.shape[0], made.weight.shape[0], *made.sizes)
    if made.x.is_contiguous():
        return empty(shape, made.x.dtype), True
    if made.x.movedim(1, -1).is_contiguous():
        last = (shape[0], *shape[2:], shape[1])
        return empty(last, made.x.dtype).movedim(-1, 1), False
    return None


def _depthwise(made: _Convolution) -> Work | None:
    """A channel of its own for each group, along one dimension: a thread computes eight neighbours."""
    laid = _result(made)
    if laid is None:
        return None
    out, first = laid
    name = f"conv1d_depthwise_{'ncl' if first else 'nlc'}_{NAMES[made.x.dtype]}"
    x = made.x.contiguous()
    bias = x if made.bias is None else made.bias.contiguous()
    buffers = (x, made.weight.contiguous(), out, made.with_space(2).params(), bias)
    return Work((out,), (Launch(name, buffers, (-(-out.shape[2] // _NEIGHBOURS), out.shape[1], out.shape[0])),))


def _volume(made: _Convolution) -> Work | None:
    """By tiles of results and of channels; channels come last in what the kernel reads."""
    laid = _result(made)
    if laid is None:
        return None
    out, first = laid
    wide = made.with_space(3)
    x, weight, (depth, height, width) = wide.x, wide.weight, wide.sizes
    long = max(x[0, :, 0].numel(), out.shape[1] * height * width) > MOST_32
    tile = (64, 64, 2, 2) if long or height * width >= _SMALL_PLANE else (32, 64, 1, 2)
    name = f"conv3d_simd{'_long' * long}_{NAMES[x.dtype]}_{'_'.join(map(str, tile))}"
    params = {
        "conv2d": wide.params(),
        "D": x.shape[2],
        "outD": depth,
        "kD": weight.shape[2],
        "sD": wide.stride[0],
        "padD": wide.padding[0],
        "dD": wide.dilation[0],
        "out_ncdhw": first,
    }
    moved, kernel = x.movedim(1, -1).contiguous(), weight.permute(2, 3, 4, 1, 0).contiguous()
    bias = moved if made.bias is None else made.bias.contiguous()
    threads = tile[2] * tile[3] * 32
    channels = -(-(out.shape[1] // made.groups) // tile[1]) * made.groups
    grid = (channels * threads, -(-height * width // tile[0]), x.shape[0] * depth)
    return Work((out,), (Launch(name, (moved, kernel, out, params, bias), grid, (threads, 1, 1)),))


def _line(call: KernelCall, made: _Convolution) -> Work | None:
    """Along one dimension."""
    (length,), each, channels = made.sizes, made.weight.shape[1], made.weight.shape[0]
    if made.weight.shape[2] >= _LARGE:
        return None
    if each == 1 and (made.groups > 1 or min(length, channels) < _FEW):
        return _depthwise(made)
    if made.groups == 1:
        numbers = each * made.weight.shape[2]
        results = length * made.x.shape[0] ** 2  # the host multiplies by the batch twice
        if length == 1 or numbers >= max(_LONG_SUM, _SUMS_A_RESULT * results):
            return None
    return _volume(made)


def _is_product(made: _Convolution) -> bool:
    """Whether the host multiplies matrices for it: of single voxels, of patches side by side, of few results."""
    if made.groups != 1 or set(made.dilation) != {1}:
        return False
    kernel = tuple(made.weight.shape[2:])
    numbers, results = math.prod(made.weight.shape[1:]), math.prod(made.sizes)
    if not any(made.padding) and made.stride == kernel:
        return numbers >= _PATCH or set(kernel) == {1}
    few = made.x.shape[0] == 1 and results <= _FEW_RESULTS and numbers >= _LONG_PATCH
    return few and made.x.dtype == torch.float32


def _convolution(call: KernelCall) -> Work | None:
    made = _given(call)
    if made is None:
        return None
    dims = made.x.dim() - 2
    if dims == 2 and max(made.weight.shape[2:]) >= _LARGE:
        return _large(made)
    if dims == 1:
        return _line(call, made)
    return _volume(made) if dims == 3 and not _is_product(made) else None


CONVOLUTIONS: dict[str, Describe] = {"convolution": _convolution}
