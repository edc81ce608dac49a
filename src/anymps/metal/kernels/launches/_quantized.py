"""Products with weights of four and eight bits, and how weights of four bits are packed.

Source: `Quantized.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations/`, whose kernels have the arguments
that those of torch 2.13's wheel describe.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES

_GROUP = 64
_GROUPS = (32, 64, 128, 256)  # numbers that share a scale
_LANES = 32


def _is_plain(call: Call, *tensors: torch.Tensor) -> bool:
    return not call.written and not call.foreign and all(one.is_contiguous() and one.numel() for one in tensors)


def _pack(call: Call) -> Work | None:
    """Two numbers a byte, as they are multiplied."""
    weight, tiles = call.given["self"], call.given["innerKTiles"]
    if not _is_plain(call, weight) or weight.dim() != 2 or weight.dtype != torch.uint8 or tiles not in (2, 4, 8):
        return None
    name = call.first(["weight_to_int4pack"])
    rows, halves = weight.shape
    columns = 2 * halves
    if name is None or rows % 8 or columns % (16 * tiles):
        return None
    out = torch.empty((rows // 8, columns // (16 * tiles), 32, tiles // 2), dtype=torch.int32, device="cpu")
    words = halves // 4
    return Work((out,), (Launch(name, (weight, out, [rows, words]), (rows, words, 1), (_GROUP, 1, 1)),), kept=True)


def _int4(call: Call) -> Work | None:
    x, weight, of, scales = (call.given[name] for name in ("self", "mat2", "qGroupSize", "qScaleAndZeros"))
    if not _is_plain(call, x, weight, scales) or x.dim() != 2 or weight.dim() != 4 or of not in _GROUPS:
        return None
    rows, inner, columns = x.shape[0], x.shape[1], weight.shape[0] * 8
    name = call.first([f"int4pack_mm_{of}_{NAMES.get(x.dtype)}"])
    if name is None or weight.dtype != torch.int32 or scales.dtype != x.dtype:
        return None
    out = torch.empty((rows, columns), dtype=x.dtype, device="cpu")
    threads = (columns // 4 * _LANES, 1, rows)
    launch = Launch(name, (x, weight, scales, out, [rows, inner, columns]), threads, (_GROUP, 1, 1))
    return Work((out,), (launch,), kept=True)


QUANTIZED: dict[str, Describe] = {"_convert_weight_to_int4pack": _pack, "_weight_int4pack_mm": _int4}
