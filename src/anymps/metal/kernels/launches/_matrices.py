"""Matrix products that are not MPSGraph's: of integers, of what the host gives to Metal.

Source: `LinearAlgebra.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations/`. A group of threads takes 16 by
16 numbers. Torch 2.13 has these kernels compute integers, rows of more than 2048 complex numbers, and everything where
`PYTORCH_MPS_PREFER_METAL` is set.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import result_of
from anymps.metal.kernels.launches._types import NAMES
from anymps.metal.kernels.launches._vectors import linear_combination, product_with_vector

_READ = (2, 13)  # later releases have other kernels for integers
_TILE = 16
_MOST_COMPLEX = 2048


def _takes_metal(x: torch.Tensor) -> bool:
    if "PYTORCH_MPS_PREFER_METAL" in os.environ:
        return True
    return not x.is_floating_point() and (not x.is_complex() or x.shape[-1] > _MOST_COMPLEX)


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return (
        call.release == _READ
        and not call.foreign
        and all(one.numel() and one.dtype == tensors[0].dtype and not one.is_neg() for one in tensors)
    )


def _threads(out: torch.Tensor, batches: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    columns, rows = (-(-one // _TILE) * _TILE for one in (out.shape[-1], out.shape[-2]))
    return (columns, rows, batches), (_TILE, _TILE, 1)


def _strides(one: torch.Tensor) -> list[int]:
    """The innermost first."""
    return list(reversed(one.stride()))


def _work(out: torch.Tensor, name: str | None, buffers: tuple[Any, ...], batches: int = 1) -> Work | None:
    if name is None:
        return None
    return Work((out,), (Launch(name, buffers, *_threads(out, batches)),), kept=True)


def _mm(call: Call) -> Work | None:
    x, other = call.given["self"].resolve_conj(), call.given["mat2"].resolve_conj()
    if not _is_plain(call, x, other) or not _takes_metal(x):
        return product_with_vector(call, x, other, None)
    out = result_of(call, (x.shape[0], other.shape[1]), x.dtype)
    if out is None:
        return None
    name = call.first([f"matmul_{NAMES.get(x.dtype)}"])
    strides = [*x.stride(), *other.stride(), *out.stride()]
    return _work(out, name, (x, other, out, strides, [*x.shape, out.shape[1]]))


def _int_mm(call: Call) -> Work | None:
    """Integers of eight bits, whose products are summed in 32; of torch 2.15."""
    x, other = call.given["self"], call.given["mat2"]
    if call.foreign or not (x.numel() and other.numel()) or x.dtype != other.dtype:
        return None
    out = result_of(call, (x.shape[0], other.shape[1]), torch.int32)
    if out is None:
        return None
    name = call.first([f"int_mm_{NAMES.get(x.dtype)}"])
    strides = [*x.stride(), *other.stride(), *out.stride()]
    if name is None:
        return None
    threads, group = _threads(out, 1)
    launch = Launch(name, (x, other, out, strides, [*x.shape, out.shape[1]]), threads[:2], group[:2])
    return Work((out,), (launch,), kept=True)


def _factors(call: Call) -> list[Any]:
    """As the kernel takes them: pairs for complex numbers."""
    factors = [call.given[name] for name in ("alpha", "beta")]
    return [complex(one) for one in factors] if call.given["self"].is_complex() else factors


def _addmm(call: Call) -> Work | None:
    bias, x, other = (call.given[name].resolve_conj() for name in ("self", "mat1", "mat2"))
    if not _is_plain(call, x, other, bias) or not _takes_metal(x):
        return product_with_vector(call, x, other, bias)
    out = result_of(call, (x.shape[0], other.shape[1]), x.dtype)
    if out is None or (out is call.given["self"] and out.shape != bias.shape):
        return None
    alpha, beta = call.given["alpha"], call.given["beta"]
    if isinstance(alpha, float) and isinstance(beta, float) and (alpha, beta) == (1.0, 0.0):
        strides = [*x.stride(), *other.stride(), *out.stride()]
        name = call.first([f"matmul_{NAMES.get(x.dtype)}"])
        return _work(out, name, (x, other, out, strides, [*x.shape, out.shape[1]]))
    bias = bias.expand(out.shape)
    name = call.first([f"addmm_{NAMES.get(x.dtype)}"])
    strides = [*x.stride(), *other.stride(), *out.stride(), *bias.stride()]
    return _work(out, name, (x, other, out, bias, _factors(call), strides, [*x.shape, out.shape[1]]))


def _bmm(call: Call) -> Work | None:
    x, other = call.given["self"].resolve_conj(), call.given["mat2"].resolve_conj()
    if not _is_plain(call, x, other) or not _takes_metal(x):
        return None
    out = result_of(call, (x.shape[0], x.shape[1], other.shape[2]), x.dtype)
    if out is None:
        return None
    name = call.first([f"naive_bmm_{NAMES.get(x.dtype)}"])
    strides = [*_strides(x), *_strides(other), *_strides(out)]
    return _work(out, name, (x, other, out, strides, [*x.shape[1:], out.shape[2], x.shape[0]]), x.shape[0])


def _added(call: Call, kernel: str) -> Work | None:
    """`baddbmm`, and `addbmm`, which sums over the batches."""
    bias, x, other = (call.given[name].resolve_conj() for name in ("self", "batch1", "batch2"))
    if not _is_plain(call, x, other, bias) or not _takes_metal(x):
        return None
    each = kernel == "naive_baddbmm"
    rows, columns = x.shape[1], other.shape[2]
    out = result_of(call, (x.shape[0], rows, columns) if each else (rows, columns), x.dtype)
    if out is None:
        return None
    bias = bias.expand(out.shape)
    of_out, of_bias = ([one.stride(-1), one.stride(-2), one.stride(0)] for one in (out, bias))
    strides = [*_strides(x), *_strides(other), *of_out, *of_bias]
    name = call.first([f"{kernel}_{NAMES.get(x.dtype)}"])
    sizes = [rows, x.shape[2], columns, x.shape[0]]
    return _work(out, name, (x, other, out, bias, _factors(call), strides, sizes), x.shape[0] if each else 1)


MATRICES: dict[str, Describe] = {
    "_int_mm": _int_mm,
    "_compute_linear_combination": linear_combination,
    "mm": _mm,
    "addmm": _addmm,
    "bmm": _bmm,
    "baddbmm": lambda call: _added(call, "naive_baddbmm"),
    "addbmm": lambda call: _added(call, "naive_addbmm"),
}
