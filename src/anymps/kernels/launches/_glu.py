"""Operators that take a tensor in two halves, or give each number in two parts: `glu`, its backward, `frexp`.

Source: the arguments that the kernels of torch 2.15's macOS wheel describe.
"""

from __future__ import annotations

import math

import torch

from anymps.kernels.launches._binary import Binary, launch_of_two
from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import all_dense, new_result, result_of, sizes_of, strides_of
from anymps.kernels.launches._types import NAMES


def _glu(call: Call) -> Work | None:
    """The first half of a dimension times the sigmoid of the second: in one run where the tensor is dense.

    Source: `glu_out_mps` and `glu_backward_mps_out` of `aten/src/ATen/native/mps/operations/Activation.mm`.
    """
    x, dim = call.given["self"], call.given["dim"]
    if call.foreign or not x.dim() or not x.numel() or x.is_neg():
        return None
    half, dim = x.shape[dim] // 2, dim % x.dim()
    shape = (*x.shape[:dim], half, *x.shape[dim + 1 :])
    out = result_of(call, shape, x.dtype)
    if out is None:
        return None
    name = f"glu_dense_{NAMES.get(x.dtype)}"
    if x.is_contiguous() and out.is_contiguous():
        run = half * math.prod(x.shape[dim + 1 :])
        threads = (run, out.numel() // run)
        return Work((out,), (Launch(name, (out, x, run), threads),), kept=True)
    halves = {"self": x.narrow(dim, 0, half), "other": x.narrow(dim, half, half)}
    launch = launch_of_two(call, Binary("glu"), list(halves.values()), out, x.dtype, None)
    return None if launch is None else Work((out,), (launch,))


def _glu_backward(call: Call) -> Work | None:
    gradient, x = call.given["grad_output"], call.given["self"]
    dim = call.given["dim"]
    if call.foreign or not x.dim() or not x.numel() or x.is_neg() or gradient.is_neg() or gradient.dtype != x.dtype:
        return None
    half, dim = x.shape[dim] // 2, dim % x.dim()
    out = result_of(call, x.shape, x.dtype)
    of = NAMES.get(x.dtype)
    if out is None:
        return None
    if all(one.is_contiguous() for one in (x, gradient, out)):
        name, run = f"glu_backward_dense_{of}", half * math.prod(x.shape[dim + 1 :])
        threads = (run, gradient.numel() // run)
        return Work((out,), (Launch(name, (out, x, gradient, run), threads),), kept=True)
    name = f"glu_backward_{of}"
    places = [strides_of(one.narrow(dim, 0, half), gradient.shape) for one in (out, x)]
    behind = [one.stride(dim) * half * one.element_size() for one in (out, x)]
    sizes = sizes_of(gradient.shape)
    buffers = (out, x, gradient, sizes, *places, strides_of(gradient, gradient.shape), *behind, len(sizes))
    return Work((out,), (Launch(name, buffers, (gradient.numel(),)),), kept=True)


def _frexp(call: Call) -> Work | None:
    """The mantissa and the exponent, in one launch."""
    x = call.given["self"]
    if call.foreign or call.written or not x.numel() or x.is_neg():
        return None
    mantissa, exponent = (new_result(x.shape, dtype, (x,)) for dtype in (x.dtype, torch.int32))
    outs, of = (mantissa, exponent), NAMES.get(x.dtype)
    places: tuple[object, ...] = ()
    if all_dense((*outs, x)):
        name = f"frexp_dense_{of}"
    else:
        name, sizes = f"frexp_strided_{of}", sizes_of(x.shape)
        places = (sizes, *(strides_of(one, x.shape) for one in (*outs, x)), len(sizes))
    return Work(outs, (Launch(name, (*outs, x, *places), (x.numel(),)),), kept=True)


GLU: dict[str, Describe] = {"glu": _glu, "glu_backward": _glu_backward, "frexp": _frexp}
