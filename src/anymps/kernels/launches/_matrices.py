"""Matrix products that are not MPSGraph's: of quantized weights, a matrix and a vector, groups of rows.

Those of integers are the CPU's to the bit.

Sources, of the pytorch tree's `aten/src/ATen/native/mps/`: `kernels/Gemv.h` and `operations/GemmHeuristics.cpp` at the
state whose kernels the wheel of torch 2.15 has; `operations/FunctionOfAMatrixUtils.mm`. The call of the former by the
host was not found: which orientation goes to which kernel follows from what each reads in a row, and its arguments.

Source of quantized weights: `operations/Quantized.mm`, whose kernels have the arguments that those of torch 2.13's
wheel describe. Source of groups of rows, or of summands, each with its own matrix: `GroupedMM.mm` beside it, and
grouped_mm_out_mps in libtorch_cpu of torch 2.15's macOS wheel, for chips without units for tensors. With no more rows
than groups, and no more than 32, a SIMD group computes each number.
"""

from __future__ import annotations

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import MOST_32, NAMES, reach, result_of

_SINCE = (2, 15)
_LANES = 32
_LOAD = 16  # bytes of the widest load
_CORES = 10  # the host's own guess, where the device tells none
_SMALL = 1024  # up to so many results, lanes are laid out in two dimensions
_LONG = 16_384  # from so many summands of float32 on, each lane has one column
_LEAST_A_GROUP = 32  # summands
_GROUP = 64
_GROUPS = (32, 64, 128, 256)  # numbers that share a scale
_TILE_COLUMNS = 64
_FEW_ROWS, _FEW_COLUMNS = 32, 16
"""Of products of groups: the most rows of which each number has a SIMD group, and how many of these are in a group of
threads."""


def _cores() -> int:
    count = getattr(torch._C, "_mps_get_core_count", None)
    return int(count()) if count is not None else _CORES


def _narrowed(width: int, alignment: int) -> int:
    """The load that rows and offset allow."""
    while width > 1 and alignment % width:
        width //= 2
    return width


def _split(length: int, summands: int, wide: bool) -> int:
    """Among how many groups of lanes the summands of a column are split; `wide` for float32."""
    least, waves = (4, 56) if wide else (16, 896)
    most = 32
    columns = _cores() * waves * _LANES * 2
    wanted = most if length <= columns // most else most // 2 if length <= columns // least else least
    wanted = min(wanted, max(least, min(most, summands // _LEAST_A_GROUP)))
    return 1 << (wanted.bit_length() - 1)


def _columns(matrix: torch.Tensor, small: bool) -> tuple[str, int, int]:
    """For a matrix whose columns lie side by side: kernel, threads of a group, results of a group."""
    summands, length = matrix.shape
    wide, strided = matrix.dtype == torch.float32, matrix.stride(1) != 1
    name = NAMES[matrix.dtype]
    alignment = 0 if strided else int(matrix.stride(0)) | int(matrix.storage_offset())
    if not small:
        split, width = 16, _narrowed(2, alignment)
    elif length <= _SMALL:
        load, parts = _LOAD // matrix.element_size(), 4 if wide else 8
        if not strided and alignment % load == 0:
            return f"gemv_t2d_{name}_16_{parts}", 16 * _LANES, _LANES // parts * load
        split, width = 16, 1
    elif wide and summands >= _LONG:
        split, width = 32, 1
    else:
        split, width = _split(length, summands, wide), _narrowed(2, alignment)
    return f"gemv_t_{name}_{split}_{width}", split * _LANES, _LANES * width


def _rows(matrix: torch.Tensor, small: bool) -> tuple[str, int, int, int]:
    """For a matrix whose rows lie in one piece: kernel, threads of a group, results of a group, width of a load."""
    length = matrix.shape[0]
    wide = matrix.dtype == torch.float32
    alignment = 0 if matrix.stride(1) != 1 else int(matrix.stride(0)) | int(matrix.storage_offset())
    if not small:
        rows = 8
    elif wide:
        rows = 4 if length >= 2048 else 16
    else:
        rows = 8 if length >= 8192 else 4
    width = _narrowed(4 if wide else 8, alignment)
    return f"gemv_nt_{NAMES[matrix.dtype]}_{rows}_{width}", rows * _LANES, rows, width


def _product_with_vector(
    call: KernelCall, x: torch.Tensor, other: torch.Tensor, bias: torch.Tensor | None
) -> Work | None:
    """The work of `mm` and `addmm` where one of the two matrices has one row, or one column; else None."""
    if call.release < _SINCE or not (x.is_floating_point() and x.dtype in NAMES):
        return None
    if not call.takes(x, other) or other.dtype != x.dtype:
        return None
    if (x.shape[0] == 1) == (other.shape[1] == 1):
        return None
    out = result_of(call, (x.shape[0], other.shape[1]), x.dtype)
    one_row = x.shape[0] == 1
    along = 1 if one_row else 0
    if out is None or out.stride(along) != 1 or (bias is not None and bias.dtype != x.dtype):
        return None
    # As (summands, results).
    matrix, vector = (other, x[0]) if one_row else (x.t(), other[:, 0])
    small = all(reach(one) <= MOST_32 for one in (matrix, vector, out))
    if matrix.stride(1) == 1 or (one_row and matrix.stride(0) != 1):
        name, threads, results = _columns(matrix, small)
        ending, ld, ms = "", matrix.stride(0), matrix.stride(1)
    else:
        name, threads, results, width = _rows(matrix.t(), small)
        together = width > 1 and vector.stride(0) == 1 and vector.storage_offset() % width == 0
        ending, ld, ms = "_xc" if together else "_xs", matrix.stride(1), matrix.stride(0)
    ending += ("" if ms == 1 else "_strided") + ("" if small else "_i64")
    kernel = f"{name}_{'none' if bias is None else 'ab'}{ending}"
    apart = 0 if bias is None else bias.expand(out.shape).stride(along)
    params = {
        "n": out.numel(),
        "K": x.shape[1],
        "ld": ld,
        "ms": ms,
        "xs": vector.stride(0),
        "bias_r": apart,
        "bias_c": apart,
    }
    factors = [1.0, 0.0] if bias is None else [float(call.given["alpha"]), float(call.given["beta"])]
    groups = -(-out.numel() // results)
    buffers = (matrix, vector, out, params, matrix if bias is None else bias, factors)
    return Work((out,), (Launch(kernel, buffers, (groups * threads,), (threads,)),))


def _linear_combination(call: KernelCall) -> Work | None:
    """Sums of the tensors along the first dimension, by a row of coefficients each."""
    x, factors = call.given["input"], call.given["coefficients"]
    if call.foreign or call.written or x.dtype not in NAMES or factors.dtype != x.dtype or not x.numel():
        return None
    x = x.contiguous()
    size, each = x.element_size(), x.numel() // x.shape[0]
    small = max(reach(x), reach(factors)) * size <= MOST_32
    name = f"compute_linear_combination_{NAMES[x.dtype]}_u{32 if small else 64}"
    if not factors.numel():
        return None
    out = call.zeros((factors.shape[0], *x.shape[1:]), x.dtype)
    strides = ([size, each * size], [size, 0], [0, factors.stride(0) * size])
    params = [each, factors.stride(1), x.shape[0], 2]
    launch = Launch(name, (out, x, factors, [each, factors.shape[0]], *strides, params), (out.numel(),))
    return Work((out,), (launch,))


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


def _height(rows: int) -> int:
    return 64 if rows > 48 else 32 if rows > 24 else 16


def _grouped(call: KernelCall) -> Work | None:
    x, other, offsets = call.given["self"], call.given["mat2"], call.given["offs"]
    if call.foreign or call.written or offsets is None or call.given["bias"] is not None:
        return None
    asked = call.given["out_dtype"]
    if x.dtype not in NAMES or other.dtype != x.dtype or asked not in (None, x.dtype) or x.dim() == other.dim() == 3:
        return None
    if not (x.numel() and other.numel() and offsets.numel()) or offsets.dtype != torch.int32:
        return None
    return _grouped_work(x, other, offsets)


def _grouped_result(x: torch.Tensor, other: torch.Tensor, groups: int) -> torch.Tensor:
    """Rows begin at multiples of 16 bytes."""
    rows, columns = x.shape[-2], other.shape[-1]
    part = 16 // x.element_size()
    apart = -(-columns // part) * part
    if x.dim() == other.dim() == 2:
        return torch.empty_strided((groups, rows, columns), (rows * apart, apart, 1), dtype=x.dtype, device="cpu")
    return torch.empty_strided((rows, columns), (apart, 1), dtype=x.dtype, device="cpu")


def _grouped_work(x: torch.Tensor, other: torch.Tensor, offsets: torch.Tensor) -> Work:
    groups = offsets.numel()
    result = out = _grouped_result(x, other, groups)
    if x.dim() == 3:  # groups of columns are groups of rows of the transposed product
        x, other, out = other.t(), x.mT, out.t()
    by_rows = other.dim() == 3
    rows, columns = x.shape[-2], other.shape[-1]
    few = by_rows and rows <= min(groups, _FEW_ROWS) and x.stride(-1) == other.stride(-2) == 1
    tile = _height(rows // groups if by_rows else rows)
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
        -(-columns // _TILE_COLUMNS) * threads,
        -(-rows // tile) + (groups if by_rows else 0),
        1 if by_rows else groups,
    )
    return Work((result,), (Launch(name, (x, other, offsets, out, params), grid, (threads, 1, 1)),))


MATRICES: dict[str, Describe] = {
    "_grouped_mm": _grouped,
    "_compute_linear_combination": _linear_combination,
    "mm": lambda call: _product_with_vector(call, call.given["self"], call.given["mat2"], None),
    "addmm": lambda call: _product_with_vector(call, call.given["mat1"], call.given["mat2"], call.given["self"]),
    "_convert_weight_to_int4pack": _pack,
    "_weight_int4pack_mm": _int4,
}
