"""Matrix products that are not MPSGraph's: of quantized weights, and of a matrix and a vector.

Those of integers are the CPU's to the bit.

Sources, of the pytorch tree's `aten/src/ATen/native/mps/`: `kernels/Gemv.h` and `operations/GemmHeuristics.cpp` at the
state whose kernels the wheel of torch 2.15 has. Their call by the host was not found: which orientation goes to which
kernel follows from what each reads in a row, and its arguments.

Source of quantized weights: `operations/Quantized.mm`, whose kernels have the arguments that those of torch 2.13's
wheel describe.
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
    "mm": lambda call: _product_with_vector(call, call.given["self"], call.given["mat2"], None),
    "addmm": lambda call: _product_with_vector(call, call.given["mat1"], call.given["mat2"], call.given["self"]),
    "_convert_weight_to_int4pack": _pack,
    "_weight_int4pack_mm": _int4,
}
