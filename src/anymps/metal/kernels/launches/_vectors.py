"""Products of a matrix and a vector, and sums of matrices by coefficients, of torch 2.15.

Sources, of the pytorch tree's `aten/src/ATen/native/mps/`: `kernels/Gemv.h` and `operations/GemmHeuristics.cpp` at the
state whose kernels the wheel of torch 2.15 has; `operations/FunctionOfAMatrixUtils.mm`. The call of the former by the
host was not found: which orientation goes to which kernel follows from what each reads in a row, and its arguments.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Launch, Made, Work
from anymps.metal.kernels.launches._elements import reach, result_of
from anymps.metal.kernels.launches._types import MOST_32, NAMES

_SINCE = (2, 15)
_LANES = 32
_LOAD = 16  # bytes of the widest load
_CORES = 10  # the host's own guess, where the device tells none
_SMALL = 1024  # up to so many results, lanes are laid out in two dimensions
_LONG = 16_384  # from so many summands of float32 on, each lane has one column
_LEAST_A_GROUP = 32  # summands


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


def product_with_vector(call: Call, x: torch.Tensor, other: torch.Tensor, bias: torch.Tensor | None) -> Work | None:
    """The work of `mm` and `addmm` where one of the two matrices has one row, or one column; else None."""
    if (
        call.release < _SINCE
        or call.foreign
        or not (x.is_floating_point() and x.dtype in NAMES)
        or not (x.numel() and other.numel())
    ):
        return None
    if (x.shape[0] == 1) == (other.shape[1] == 1) or other.dtype != x.dtype:
        return None
    out = result_of(call, (x.shape[0], other.shape[1]), x.dtype)
    one_row = x.shape[0] == 1
    along = 1 if one_row else 0
    if out is None or out.stride(along) != 1 or (bias is not None and bias.dtype != x.dtype):
        return None
    # As (summands, results), the vector's numbers lying `step` apart.
    matrix, vector = (other, x[0]) if one_row else (x.t(), other[:, 0])
    step = vector.stride(0)
    small = all(reach(one) <= MOST_32 for one in (matrix, vector, out))
    in_rows = matrix.stride(1) == 1 or (one_row and matrix.stride(0) != 1)
    with_bias = "none" if bias is None else "ab"
    if in_rows:
        base, threads, results = _columns(matrix, small)
        name, ld, ms = f"{base}_{with_bias}", matrix.stride(0), matrix.stride(1)
    else:
        base, threads, results, width = _rows(matrix.t(), small)
        together = width > 1 and step == 1 and vector.storage_offset() % width == 0
        name, ld, ms = f"{base}_{with_bias}_{'xc' if together else 'xs'}", matrix.stride(1), matrix.stride(0)
    kernel = call.first([name + ("" if ms == 1 else "_strided") + ("" if small else "_i64")])
    if kernel is None:
        return None
    apart = 0 if bias is None else bias.expand(out.shape).stride(along)
    params = {
        "n": out.numel(),
        "K": x.shape[1],
        "ld": ld,
        "ms": ms,
        "xs": step,
        "bias_r": apart,
        "bias_c": apart,
    }
    factors = [1.0, 0.0] if bias is None else [float(call.given["alpha"]), float(call.given["beta"])]
    groups = -(-out.numel() // results)
    buffers = (matrix, vector, out, params, matrix if bias is None else bias, factors)
    return Work((out,), (Launch(kernel, buffers, (groups * threads,), (threads,)),), kept=True)


def linear_combination(call: Call) -> Work | None:
    """Sums of the tensors along the first dimension, by a row of coefficients each."""
    x, factors = call.given["input"], call.given["coefficients"]
    if call.foreign or call.written or x.dtype not in NAMES or factors.dtype != x.dtype or not x.numel():
        return None
    x = x.contiguous()
    size, each = x.element_size(), x.numel() // x.shape[0]
    small = max(reach(x), reach(factors)) * size <= MOST_32
    name = call.first([f"compute_linear_combination_{NAMES[x.dtype]}_u{32 if small else 64}"])
    if name is None or not factors.numel():
        return None
    out = torch.zeros((factors.shape[0], *x.shape[1:]), dtype=x.dtype, device="cpu")
    strides = ([size, each * size], [size, 0], [0, factors.stride(0) * size])
    params = [each, factors.stride(1), x.shape[0], 2]
    launch = Launch(name, (out, x, factors, [each, factors.shape[0]], *strides, params), (out.numel(),))
    return Work((out,), (launch,), kept=True, made=(Made(out, "zeros"),))
