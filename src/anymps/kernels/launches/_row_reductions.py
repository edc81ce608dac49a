"""Operators over the last dimensions: where the largest stands, extremes of later releases, and norms of layers.

Source: the arguments that the kernels of torch 2.13's wheel describe, and `ATen/native/mps/kernels/ReduceOps.h`: a SIMD
group reduces a row, whatever kernel the host takes: no order changes these results. Sums are those of _reductions.py.
A norm of layers has a group of threads for each row, four numbers a thread; of more than 4096 numbers the largest group
loops. Up to 4096 the width of the group changes no bit: a thread behind the row's end adds zero.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import result_of
from anymps.kernels.launches._norms import PLACED
from anymps.kernels.launches._reductions import READ, REDUCTIONS, named_dims
from anymps.kernels.launches._split_reductions import SPLIT, SPLIT_REDUCTIONS
from anymps.kernels.launches._types import NAMES

_LANES = 32  # of a SIMD group
_GROUP = 256
_LONGEST = 4096  # numbers of a row that one pass takes (Normalization.mm and RMSNorm.mm of the pytorch tree)
_MOST = 1024  # threads of a group
_A_THREAD = 4


def _dimensions(call: Call, x: torch.Tensor) -> list[int] | None:
    """The dimensions that go, in order; None if they are not the last ones."""
    dims = named_dims(call, x)
    return dims if dims == list(range(x.dim() - len(dims), x.dim())) and x.dim() else None


def _reduce(call: Call, kernel: str, result: torch.dtype | None) -> Work | None:
    x = call.given["self"]
    dims = _dimensions(call, x)
    if dims is None or not x.is_contiguous() or not x.numel() or x.is_conj() or x.is_neg():
        return None
    kept = list(x.shape[: x.dim() - len(dims)])
    shape = kept + [1] * len(dims) if call.given.get("keepdim") else kept
    out = result_of(call, shape, result or x.dtype)
    if out is None or not out.is_contiguous():
        return None
    if result == torch.bool and (x.dtype == torch.uint8 or call.given.get("dim") == []):
        return None  # a result of uint8; or each number by itself
    of = "uchar" if out.dtype == torch.bool else NAMES.get(out.dtype)  # truth values are bytes
    name = f"{kernel}_reduction_inner_{NAMES.get(x.dtype)}_{of}"
    rows, columns = out.numel(), x.numel() // out.numel()
    more = (0.0,) if kernel == "count_nonzero" else ()
    groups = -(-rows // (_GROUP // _LANES))  # whole ones: a thread finds its row by the size of its group
    buffers = (x, out, [rows, columns], *more)
    return Work((out,), (Launch(name, buffers, (groups * _GROUP,), (_GROUP,)),), kept=True)


def _reads_as(own: torch.Tensor, x: torch.Tensor, release: tuple[int, int]) -> bool:
    """Whether the kernel for the input's dtype gets these weights: up to 2.13 those of another dtype, too.

    That is pytorch issue 190054. Not narrower ones: the kernel reads past their end, and what lies there is not known.
    """
    return own.dtype == x.dtype or (release < (2, 14) and own.element_size() > x.element_size())


def _layer_norm(call: Call) -> Work | None:
    x, weight, bias = (call.given[name] for name in ("input", "weight", "bias"))
    shape: Sequence[int] = call.given["normalized_shape"]
    columns = functools.reduce(lambda a, b: a * b, shape, 1)
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
    out = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    mean, deviation = (torch.empty(kept, dtype=x.dtype, device="cpu") for _ in range(2))
    width = _MOST if long else -(-columns // (_A_THREAD * _LANES)) * _LANES
    numbers = (columns, call.given["eps"], int(weight is not None), int(bias is not None))
    buffers = (x, out, mean, deviation, *numbers, weight, bias)
    return Work((out, mean, deviation), (Launch(name, buffers, (rows * width,), (width,)),), kept=True)


def _extreme(kernel: str, result: torch.dtype | None = None) -> Describe:
    return lambda call: _reduce(call, kernel, result)


def _by_release(name: str, later: Describe) -> Describe:
    """As the hosts of torch 2.13 and 2.15 do it, which were read; in other releases as `later` says."""
    read = {READ: {**REDUCTIONS, **PLACED}.get(name, later), SPLIT: SPLIT_REDUCTIONS[name]}
    return lambda call: read.get(call.release, later)(call)


ROW_REDUCTIONS: dict[str, Describe] = {
    **{name: _by_release(name, lambda call: None) for name in ("sum", "nansum", "mean", "prod", "var", "std")},
    **{name: _by_release(name, _extreme(name, torch.int64)) for name in ("argmax", "argmin")},
    **{name: _by_release(name, _extreme(kernel)) for name, kernel in {"amax": "max", "amin": "min"}.items()},
    **{name: _by_release(name, _extreme(name, torch.bool)) for name in ("any", "all")},
    "count_nonzero": _by_release("count_nonzero", _extreme("count_nonzero", torch.int64)),
    "native_layer_norm": _layer_norm,
}
