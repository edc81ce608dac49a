"""Group normalisation, forward and backward: a group of threads for each group of channels.

Source: `aten/src/ATen/native/mps/operations/GroupNorm.mm` of the pytorch tree and `ATen/native/mps/kernels/GroupNorm.h`
of torch 2.13's wheel. A thread takes blocks of four numbers.
"""

from __future__ import annotations

from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._types import NAMES

_BLOCK, _LANES, _MOST = 4, 32, 1024


def _width(numbers: int) -> int:
    """Threads of a group: one for each block, in whole SIMD groups."""
    return min(_MOST, -(-numbers // (_BLOCK * _LANES)) * _LANES)


def _type(tensor: torch.Tensor | None) -> str | None:
    return "void" if tensor is None else NAMES.get(tensor.dtype)


def _params(call: Call) -> dict[str, Any]:
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


def _is_plain(call: Call, *tensors: torch.Tensor | None) -> bool:
    given = [one for one in tensors if one is not None]
    return (
        call.is_read_or_older
        and not call.written
        and not call.foreign
        and all(one.is_contiguous() and one.numel() for one in given)
    )


def _forward(call: Call) -> Work | None:
    x, weight, bias = (call.given[name] for name in ("input", "weight", "bias"))
    if not _is_plain(call, x, weight, bias):
        return None
    of = x.dtype if weight is None else weight.dtype  # mixed precision keeps mean and deviation in the weight's dtype
    name = f"group_norm_{_type(x)}_{NAMES.get(of)}_{_type(weight)}_{_type(bias)}_uint32_t"
    params = _params(call)
    rows = call.given["N"] * params["num_groups"]
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    shape = (call.given["N"], params["num_groups"])
    mean, deviation = (torch.empty(shape, dtype=of, device="cpu") for _ in range(2))
    width = _width(params["elements_per_group"])
    launch = Launch(name, (out, mean, deviation, x, weight, bias, params), (rows * width,), (width,))
    return Work((out, mean, deviation), (launch,), kept=True)


def _backward(call: Call) -> Work | None:
    names = ("grad_out", "input", "mean", "rstd", "weight")
    gradient, x, mean, deviation, weight = (call.given[name] for name in names)
    if not _is_plain(call, gradient, x, mean, deviation, weight) or not all(call.given["output_mask"]):
        return None
    if weight is None or gradient.dtype != x.dtype:
        return None
    types = f"{_type(gradient)}_{_type(mean)}_{_type(weight)}_uint32_t"
    whole, affine = (f"group_norm_backward_{one}_{types}" for one in ("x", "affine"))
    params = _params(call)
    of_x = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    of_weight, of_bias = (torch.empty(weight.shape, dtype=weight.dtype, device="cpu") for _ in range(2))
    rows, width = call.given["N"] * params["num_groups"], _width(params["elements_per_group"])
    tall = _width(params["N_times_HxW"])
    launches = (
        Launch(whole, (of_x, gradient, x, mean, deviation, weight, params), (rows * width,), (width,)),
        Launch(affine, (of_weight, of_bias, gradient, x, mean, deviation, params), (params["C"] * tall,), (tall,)),
    )
    return Work((of_x, of_weight, of_bias), launches, kept=True)


GROUP_NORM: dict[str, Describe] = {"native_group_norm": _forward, "native_group_norm_backward": _backward}
