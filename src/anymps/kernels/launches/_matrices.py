"""Matrix products that are not MPSGraph's: of quantized weights. Those of integers are the CPU's to the bit.

Source: `aten/src/ATen/native/mps/operations/Quantized.mm` of the pytorch tree, whose kernels have the arguments that
those of torch 2.13's wheel describe.
"""

from __future__ import annotations

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES

_LANES = 32
_GROUP = 64
_GROUPS = (32, 64, 128, 256)  # numbers that share a scale


def _all_contiguous(call: KernelCall, *tensors: torch.Tensor) -> bool:
    return not call.written and not call.foreign and all(one.is_contiguous() and one.numel() for one in tensors)


def _pack(call: KernelCall) -> Work | None:
    """Two numbers a byte, as they are multiplied."""
    weight, tiles = call.given["self"], call.given["innerKTiles"]
    if not _all_contiguous(call, weight) or weight.dim() != 2 or weight.dtype != torch.uint8 or tiles not in (2, 4, 8):
        return None
    name = "weight_to_int4pack"
    rows, halves = weight.shape
    columns = 2 * halves
    if rows % 8 or columns % (16 * tiles):
        return None
    out = call.empty((rows // 8, columns // (16 * tiles), 32, tiles // 2), torch.int32)
    words = halves // 4
    return Work((out,), (Launch(name, (weight, out, [rows, words]), (rows, words, 1), (_GROUP, 1, 1)),))


def _int4(call: KernelCall) -> Work | None:
    x, weight, of, scales = (call.given[name] for name in ("self", "mat2", "qGroupSize", "qScaleAndZeros"))
    if not _all_contiguous(call, x, weight, scales) or x.dim() != 2 or weight.dim() != 4 or of not in _GROUPS:
        return None
    rows, inner, columns = x.shape[0], x.shape[1], weight.shape[0] * 8
    name = f"int4pack_mm_{of}_{NAMES.get(x.dtype)}"
    if weight.dtype != torch.int32 or scales.dtype != x.dtype:
        return None
    out = call.empty((rows, columns), x.dtype)
    threads = (columns // 4 * _LANES, 1, rows)
    launch = Launch(name, (x, weight, scales, out, [rows, inner, columns]), threads, (_GROUP, 1, 1))
    return Work((out,), (launch,))


MATRICES: dict[str, Describe] = {
    "_convert_weight_to_int4pack": _pack,
    "_weight_int4pack_mm": _int4,
}
