"""Products of groups of rows, or of summands, each with its own matrix, of torch 2.15.

Source: `GroupedMM.mm` and `GroupedMM.h` of the pytorch tree's `aten/src/ATen/native/mps/`, and grouped_mm_out_mps in
libtorch_cpu of torch 2.15's macOS wheel, for chips without units for tensors. With no more rows than groups, and no
more than 32, a SIMD group computes each number.
"""

from __future__ import annotations

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._types import MOST_32, NAMES

_COLUMNS = 64  # of a group of threads
_LANES = 32
_FEW_ROWS, _FEW_COLUMNS = 32, 16
"""The most rows of which each number has a SIMD group, and how many of these are in a group of threads."""


def _tile(rows: int) -> int:
    return 64 if rows > 48 else 32 if rows > 24 else 16


def _grouped(call: Call) -> Work | None:
    x, other, offsets = call.given["self"], call.given["mat2"], call.given["offs"]
    if call.foreign or call.written or offsets is None or call.given["bias"] is not None:
        return None
    asked = call.given["out_dtype"]
    if x.dtype not in NAMES or other.dtype != x.dtype or asked not in (None, x.dtype) or x.dim() == other.dim() == 3:
        return None
    if not (x.numel() and other.numel() and offsets.numel()) or offsets.dtype != torch.int32:
        return None
    return _work(x, other, offsets)


def _result(x: torch.Tensor, other: torch.Tensor, groups: int) -> torch.Tensor:
    """Rows begin at multiples of 16 bytes."""
    rows, columns = x.shape[-2], other.shape[-1]
    part = 16 // x.element_size()
    apart = -(-columns // part) * part
    if x.dim() == other.dim() == 2:
        return torch.empty_strided((groups, rows, columns), (rows * apart, apart, 1), dtype=x.dtype, device="cpu")
    return torch.empty_strided((rows, columns), (apart, 1), dtype=x.dtype, device="cpu")


def _work(x: torch.Tensor, other: torch.Tensor, offsets: torch.Tensor) -> Work:
    groups = offsets.numel()
    result = out = _result(x, other, groups)
    if x.dim() == 3:  # groups of columns are groups of rows of the transposed product
        x, other, out = other.t(), x.mT, out.t()
    by_rows = other.dim() == 3
    rows, columns = x.shape[-2], other.shape[-1]
    few = by_rows and rows <= min(groups, _FEW_ROWS) and x.stride(-1) == other.stride(-2) == 1
    tile = _tile(rows // groups if by_rows else rows)
    small = all(one.numel() <= MOST_32 for one in (x, other, out))
    kind, end = "few_rows" if few else "rows" if by_rows else "k", "" if few else f"_bm{tile}"
    name = f"grouped_mm_{kind}_{NAMES[x.dtype]}{end}_u{32 if small else 64}"
    params = {
        "m": rows,
        "n": columns,
        "k": min(x.shape[-1], other.shape[-2]),
        "groups": groups,
        "a_stride_m": x.stride(-2),
        "a_stride_k": x.stride(-1),
        "b_stride_k": other.stride(-2),
        "b_stride_n": other.stride(-1),
        "out_stride_m": out.stride(-2),
        "out_stride_n": out.stride(-1),
        "batch_stride": (other if by_rows else out).stride(0),
    }
    if few:
        threads = _FEW_COLUMNS * _LANES
        grid = (-(-columns // _FEW_COLUMNS) * threads, rows, 1)
        return Work((result,), (Launch(name, (x, other, offsets, out, params), grid, (threads, 1, 1)),))
    threads = (4 if tile == 64 else 2) * _LANES
    grid = (
        -(-columns // _COLUMNS) * threads,
        -(-rows // tile) + (groups if by_rows else 0),
        1 if by_rows else groups,
    )
    return Work((result,), (Launch(name, (x, other, offsets, out, params), grid, (threads, 1, 1)),))


GROUPED_PRODUCTS: dict[str, Describe] = {"_grouped_mm": _grouped}
