"""Normalisation of groups, forward and backward, and of layers: a group of threads for each, four numbers a thread.

Source: `GroupNorm.mm`, `Normalization.mm` and `RMSNorm.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations`,
and the arguments that the kernels of torch 2.13's wheel describe. Of layers of more than 4096 numbers the largest group
loops. Up to 4096 the width of the group changes no bit: a thread behind the row's end adds zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES

_BLOCK, _LANES, _MOST = 4, 32, 1024
_LONGEST = 4096  # numbers of a layer that one pass takes


def _width(numbers: int) -> int:
    """Threads of a group: one for each block, in whole SIMD groups."""
    return min(_MOST, -(-numbers // (_BLOCK * _LANES)) * _LANES)


def _type(tensor: torch.Tensor | None) -> str | None:
    return "void" if tensor is None else NAMES.get(tensor.dtype)


def _params(call: KernelCall) -> dict[str, Any]:
    n, c, area, groups = (int(call.given[name]) for name in ("N", "C", "HxW", "group"))
    each = c // groups
    return {
        "HxW": area,
        "num_groups": groups,
        "channels_per_group": each,
        "elements_per_group": each * area,
        "C": c,
        "N_times_HxW": n * area,
        "eps": call.given.get("eps", 0.0),
    }


def _is_plain(call: KernelCall, *tensors: torch.Tensor | None) -> bool:
    given = [one for one in tensors if one is not None]
    return (
        call.is_read_or_older
        and not call.written
        and not call.foreign
        and all(one.is_contiguous() and one.numel() for one in given)
    )


def _forward(call: KernelCall) -> Work | None:
    x, weight, bias = (call.given[name] for name in ("input", "weight", "bias"))
    if not _is_plain(call, x, weight, bias):
        return None
    of = x.dtype if weight is None else weight.dtype  # mixed precision keeps mean and deviation in the weight's dtype
    name = f"group_norm_{_type(x)}_{NAMES.get(of)}_{_type(weight)}_{_type(bias)}_uint32_t"
    params = _params(call)
    rows = call.given["N"] * params["num_groups"]
    out = call.empty(x.shape, x.dtype)
    shape = (call.given["N"], params["num_groups"])
    mean, deviation = (call.empty(shape, of) for _ in range(2))
    width = _width(params["elements_per_group"])
    launch = Launch(name, (out, mean, deviation, x, weight, bias, params), (rows * width,), (width,))
    return Work((out, mean, deviation), (launch,))


def _backward(call: KernelCall) -> Work | None:
    names = ("grad_out", "input", "mean", "rstd", "weight")
    gradient, x, mean, deviation, weight = (call.given[name] for name in names)
    if not _is_plain(call, gradient, x, mean, deviation, weight) or not all(call.given["output_mask"]):
        return None
    if weight is None or gradient.dtype != x.dtype:
        return None
    types = f"{_type(gradient)}_{_type(mean)}_{_type(weight)}_uint32_t"
    whole, affine = (f"group_norm_backward_{one}_{types}" for one in ("x", "affine"))
    params = _params(call)
    of_x = call.empty(x.shape, x.dtype)
    of_weight, of_bias = (call.empty(weight.shape, weight.dtype) for _ in range(2))
    rows, width = call.given["N"] * params["num_groups"], _width(params["elements_per_group"])
    tall = _width(params["N_times_HxW"])
    launches = (
        Launch(whole, (of_x, gradient, x, mean, deviation, weight, params), (rows * width,), (width,)),
        Launch(affine, (of_weight, of_bias, gradient, x, mean, deviation, params), (params["C"] * tall,), (tall,)),
    )
    return Work((of_x, of_weight, of_bias), launches)


def _reads_as(own: torch.Tensor, x: torch.Tensor, release: tuple[int, int]) -> bool:
    """Whether the kernel for the input's dtype gets these weights: up to 2.13 those of another dtype, too.

    That is pytorch issue 190054. Not narrower ones: the kernel reads past their end, and what lies there is not known.
    """
    return own.dtype == x.dtype or (release < (2, 14) and own.element_size() > x.element_size())


def _layer_norm(call: KernelCall) -> Work | None:
    x, weight, bias = (call.given[name] for name in ("input", "weight", "bias"))
    shape: Sequence[int] = call.given["normalized_shape"]
    columns = math.prod(shape)
    named = [one for one in (weight, bias) if one is not None]
    if call.written or call.foreign or not x.is_contiguous() or not x.numel() or not columns:
        return None
    if any(not one.is_contiguous() or not _reads_as(one, x, call.release) for one in named):
        return None
    long = columns > _LONGEST
    kernel, of = f"layer_norm_{'looped' if long else 'single_row'}", NAMES.get(x.dtype)
    name = call.first([f"{kernel}_{of}", f"{kernel}_i32_{of}"])  # the second in releases after torch 2.13
    if name is None:
        return None
    rows = x.numel() // columns
    kept = list(x.shape[: x.dim() - len(shape)]) + [1] * len(shape)
    out = call.empty(x.shape, x.dtype)
    mean, deviation = (call.empty(kept, x.dtype) for _ in range(2))
    width = _MOST if long else _width(columns)
    numbers = (columns, call.given["eps"], int(weight is not None), int(bias is not None))
    buffers = (x, out, mean, deviation, *numbers, weight, bias)
    return Work((out, mean, deviation), (Launch(name, buffers, (rows * width,), (width,)),))


NORMALIZATIONS: dict[str, Describe] = {
    "native_group_norm": _forward,
    "native_group_norm_backward": _backward,
    "native_layer_norm": _layer_norm,
}
