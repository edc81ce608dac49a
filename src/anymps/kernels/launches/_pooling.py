"""Pooling: means and largest numbers of windows, what flows back, and numbers put back where a pool found them.

Source: `ATen/native/mps/kernels/Pooling.h` of torch 2.13's wheel, and the arguments that its kernels describe. A thread
an element of the result; backwards, a thread an element of the gradient adds to each place of its window. The largest
number in two dimensions and the backward of a mean in two are MPSGraph's in torch 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.kernels.launches._elements import have_numbers
from anymps.kernels.launches._types import NAMES

_SPACE = 3  # dimensions
_ERRORS = 4  # the slot of the error buffer of an unpooling


def _each(value: Sequence[int] | int, dims: int) -> list[int]:
    """A setting for each dimension of a window; one number stands for all."""
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def _placed(word: str, tensor: torch.Tensor) -> dict[str, list[int]]:
    return {f"{word}_sizes": list(tensor.shape), f"{word}_strides": list(tensor.stride())}


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return (
        call.is_read_or_older
        and not call.written
        and not call.foreign
        and all(one.is_contiguous() and one.numel() for one in tensors)
    )


def _like_cpu(operator: str, given: list[Any]) -> Any:
    """The shapes of the results, by torch's own rules."""
    meta = [one.to("meta") if isinstance(one, torch.Tensor) else one for one in given]
    return getattr(torch.ops.aten, operator)(*meta)


def _settings(call: Call, dims: int) -> dict[str, list[int]]:
    size = _each(call.given["kernel_size"], dims)
    return {
        "kernel_size": size,
        "stride": _each(call.given["stride"], dims) or size,
        "padding": _each(call.given["padding"], dims),
    }


def _max_pool(call: Call) -> Work | None:
    x, dims = call.given["self"], _SPACE
    name = f"max_pool_{NAMES.get(x.dtype)}"
    if not _is_plain(call, x) or x.dim() not in (dims + 1, dims + 2):
        return None
    shapes = _like_cpu("max_pool3d_with_indices", list(call.given.values()))
    out = torch.empty(shapes[0].shape, dtype=x.dtype, device="cpu")
    places = torch.empty(out.shape, dtype=torch.int64, device="cpu")
    params: dict[str, Any] = {"dims": x.dim(), "pooling_dims": dims, "return_indices": True}
    params |= {**_placed("input", x), **_placed("output", out), **_placed("indices", places)}
    params |= {**_settings(call, dims), "dilation": _each(call.given["dilation"], dims)}
    params |= {"adaptive": False} if call.release > (2, 13) else {}
    return Work((out, places), (Launch(name, (x, out, places, params), (out.numel(),)),), kept=True)


def _max_pool_backward(call: Call) -> Work | None:
    gradient, x, places = (call.given[name] for name in ("grad_output", "self", "indices"))
    name = f"max_pool_backward_{NAMES.get(x.dtype)}"
    if not _is_plain(call, x, places) or gradient.dtype != x.dtype:
        return None
    out = torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    params: dict[str, Any] = {"dims": x.dim(), "pooling_dims": _SPACE, "indices_strides": list(places.stride())}
    params |= {**_placed("grad_input", out), **_placed("grad_output", gradient)}
    launch = Launch(name, (out, gradient, places, params), (gradient.numel(),))
    return Work((out,), (launch,), kept=True, made=(Made(out, "zeros"),))


def _mean_params(call: Call, x: torch.Tensor, out: torch.Tensor, dims: int) -> dict[str, Any]:
    divisor = call.given["divisor_override"]
    return {
        "dims": x.dim(),
        "pooling_dims": dims,
        **_placed("input", x),
        **_placed("output", out),
        **_settings(call, dims),
        "count_include_pad": call.given["count_include_pad"],
        "has_divisor_override": divisor is not None,
        "divisor_override": divisor or 0,
    }


def _avg_pool(call: Call, dims: int) -> Work | None:
    x = call.given["self"]
    name = f"avg_pool_{NAMES.get(x.dtype)}"
    if not _is_plain(call, x) or x.dim() not in (dims + 1, dims + 2):
        return None
    shape = _like_cpu(f"avg_pool{dims}d", list(call.given.values())).shape
    out = torch.empty(shape, dtype=x.dtype, device="cpu")
    params = _mean_params(call, x, out, dims)
    return Work((out,), (Launch(name, (x, out, params), (out.numel(),)),), kept=True)


def _avg_pool_backward(call: Call) -> Work | None:
    gradient, x = call.given["grad_output"], call.given["self"]
    name = f"avg_pool_backward_{NAMES.get(x.dtype)}"
    if not _is_plain(call, x) or not gradient.numel() or gradient.dtype != x.dtype:
        return None
    out = torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    params = _mean_params(call, out, gradient, _SPACE)
    launch = Launch(name, (out, gradient, params), (gradient.numel(),))
    return Work((out,), (launch,), kept=True, made=(Made(out, "zeros"),))


def _may_unpool(call: Call, *tensors: torch.Tensor) -> bool:
    return call.is_read and not call.written and not call.foreign and have_numbers(tensors)


def _unpool(call: Call, dims: int) -> Work | None:
    x, places, size = (call.given[name] for name in ("self", "indices", "output_size"))
    name = f"max_unpool_{NAMES.get(x.dtype)}"
    if not _may_unpool(call, x, places) or x.dim() not in (dims + 1, dims + 2) or len(size) != dims:
        return None
    if places.shape != x.shape or places.dtype != torch.int64 or min(size) <= 0:
        return None
    out = torch.zeros((*x.shape[:-dims], *size), dtype=x.dtype, device="cpu")
    params: dict[str, Any] = {"dims": x.dim(), "pooling_dims": dims, "indices_strides": places.stride()}
    for word, one in (("input", x), ("output", out)):
        params |= {f"{word}_sizes": list(one.shape), f"{word}_strides": one.stride()}
    return Work((out,), (Launch(name, (out, x, places, params), (x.numel(),), None, _ERRORS),))


def _adaptive_max_pool2d(call: Call) -> Work | None:
    x, size = call.given["self"], call.given["output_size"]
    sizes: Sequence[int] = x.shape[-2:]
    if not call.is_read_or_older or call.written or x.dim() not in (3, 4) or not x.numel():
        return None
    if any(large < small or small <= 0 for large, small in zip(sizes, size, strict=True)):
        return None
    name = f"max_pool_{NAMES.get(x.dtype)}"
    strides = [large // small for large, small in zip(sizes, size, strict=True)]
    windows = [large - (small - 1) * step for large, small, step in zip(sizes, size, strides, strict=True)]
    out = torch.empty((*x.shape[:-2], *size), dtype=x.dtype, device="cpu")
    places = torch.empty(out.shape, dtype=torch.int64, device="cpu")
    params = {
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
    for word, tensor in (("input", x), ("output", out), ("indices", places)):
        params |= {f"{word}_sizes": list(tensor.shape), f"{word}_strides": list(tensor.stride())}
    return Work((out, places), (Launch(name, (x, out, places, params), (out.numel(),)),))


POOLING: dict[str, Describe] = {
    "max_pool3d_with_indices": _max_pool,
    "max_pool3d_with_indices_backward": _max_pool_backward,
    "avg_pool2d": lambda call: _avg_pool(call, 2),
    "avg_pool3d": lambda call: _avg_pool(call, 3),
    "avg_pool3d_backward": _avg_pool_backward,
    "max_unpool2d": lambda call: _unpool(call, 2),
    "max_unpool3d": lambda call: _unpool(call, 3),
    "adaptive_max_pool2d": _adaptive_max_pool2d,
}
