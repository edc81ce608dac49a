"""Factors and inverses of matrices that Metal kernels find, and systems with a triangular matrix.

Source: `LinearAlgebra.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations/`. Solvers and LU factors of torch
2.13 are those of Metal Performance Shaders, which no wheel holds; LU factors of torch 2.15 are in _lu.py.

Source of systems of 16, 32 or 64 equations with eight or more right-hand sides, of torch 2.15:
linalg_solve_triangular_mps_impl and triangular_solve_metal in libtorch_cpu of torch 2.15's macOS wheel, for chips
without units for tensors. A group of threads solves one system. Other sizes take threadgroup memory whose length comes
with the launch.
"""

from __future__ import annotations

import math

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work, empty
from anymps.kernels.launches._elements import NAMES, batch_of
from anymps.kernels.launches._unary import launch_of_one

_BLOCK = 32
_CHOLESKY = (32, 8, 1)  # threads of a group
_MOST = 1024
_SMALL = 4  # rows of a matrix that one thread inverts
_LARGEST = 512  # rows or columns that the kernel of QR takes
_BLOCKS = (2, 15)  # the first release that reflects by blocks
_LANES, _NARROWEST = 32, 8
_SIZES = (16, 32, 64)
_FEWEST = 8  # right-hand sides
_THREADS = 4  # of each equation


def _cholesky(call: KernelCall) -> Work | None:
    """Block by block: the diagonal one, those behind it in its column, and what they take from the rest."""
    matrix, upper = call.given["self"], call.given["upper"]
    if not call.makes(matrix) or call.given["check_errors"]:
        return None
    side, of = "U" if upper else "L", NAMES.get(matrix.dtype)
    cut = f"tri{side.lower()}_inplace_int_{of}"
    steps = (f"factorDiagonalBlock{side}", f"applyTRSM{side}", f"applySYRK{side}")
    # Torch 2.15 names the dtype, too; on chips with matrix units, which no virtual one is, it goes by panels.
    found = [call.first([one, f"{one}_{of}"] if of == "float" else [f"{one}_{of}"]) for one in steps]
    if None in found:
        return None
    factor, solve, update = (one or "" for one in found)
    size, batch = matrix.shape[-1], math.prod(matrix.shape[:-2])
    out = matrix.mT.contiguous().clone().mT  # column by column
    info = torch.zeros(matrix.shape[:-2], dtype=torch.int32, device="cpu")
    block = min(_BLOCK, size)
    blocks = -(-size // block)
    wide, tall, _ = _CHOLESKY
    launches = []
    for at in range(blocks):
        left = blocks - at - 1
        launches.append(Launch(factor, (out, info, size, block, at), (batch * wide, tall, 1), _CHOLESKY))
        if left:
            pairs = left * (left + 1) // 2
            launches.append(Launch(solve, (out, None, size, block, at), (batch * wide, left * tall, 1), _CHOLESKY))
            launches.append(Launch(update, (out, None, size, block, at), (batch * wide, pairs * tall, 1), _CHOLESKY))
    sizes, strides = list(reversed(out.shape)), list(reversed(out.stride()))
    launches.append(Launch(cut, (out, strides, sizes, [0, out.dim()]), (size, size, batch)))
    return Work((out, info), tuple(launches))


def _qr(call: KernelCall) -> Work | None:
    """Q and R are copied out of larger matrices."""
    matrix, mode = call.given["A"], call.given["mode"]
    if not call.makes(matrix) or matrix.dtype != torch.float32 or mode not in ("reduced", "complete"):
        return None
    rows, columns = matrix.shape[-2:]
    name = f"linalg_qr_householder_{NAMES[matrix.dtype]}"
    if min(rows, columns) > _LARGEST:
        return None
    work = matrix.reshape(-1, rows, columns).contiguous().clone()  # the kernel writes into it
    batch, kept = work.shape[0], min(rows, columns) if mode == "reduced" else rows
    wide_q, wide_r, vectors = (empty((batch, rows, one), matrix.dtype) for one in (rows, columns, 1))
    info = torch.zeros(1, dtype=torch.int32, device="cpu")
    q = empty((*matrix.shape[:-1], kept), matrix.dtype)
    r = empty((*matrix.shape[:-2], kept, columns), matrix.dtype)
    params = {"m": rows, "n": columns}
    launches = [Launch(name, (work, wide_q, wide_r, info, params, vectors), (batch * _MOST, 1, 1), (_MOST, 1, 1))]
    for source, out in ((wide_q[..., :kept], q), (wide_r[..., :kept, :], r)):
        copy = launch_of_one(call, "copy_identity", source.reshape(out.shape), out, None, [""])
        if copy is None or copy.buffers[1].data_ptr() != source.data_ptr():
            return None
        launches.append(copy)
    return Work((q, r), tuple(launches))


def _householder(call: KernelCall) -> Work | None:
    matrix, factors = call.given["input"], call.given["tau"]
    if not call.makes(matrix, factors) or factors.dtype != matrix.dtype:
        return None
    name = f"orgqr_{NAMES.get(matrix.dtype)}"
    rows, columns = matrix.shape[-2:]
    if call.release >= _BLOCKS and rows > _BLOCK:
        return None  # MPSGraph multiplies by blocks of reflectors
    out = matrix.mT.contiguous().clone().mT  # column by column
    factors = factors.contiguous()
    products = [empty((*matrix.shape[:-2], rows, rows), matrix.dtype) for _ in range(3)]
    params = {
        "num_batch_dims": matrix.dim() - 2,
        "m": rows,
        "m2": rows * rows,
        "n": columns,
        "k": factors.shape[-1],
        "A_strides": list(out.stride()),
        "tau_strides": list(factors.stride()),
        "H_strides": list(products[0].stride()),
        "H_sizes": list(products[0].shape),
    }
    width = min(_MOST, rows * rows)
    threads = (width * math.prod(matrix.shape[:-2]),)
    return Work((out,), (Launch(name, (out, factors, *products, params), threads, (width,)),))


def _reflectors(call: KernelCall) -> Work | None:
    """A panel of no more than 32 columns, or rows, as torch 2.15 factors it (geqrf_kernel_mps in its libtorch_cpu)."""
    matrix = call.given["self"]
    if not call.makes(matrix) or matrix.dtype != torch.float32:
        return None
    rows, columns = matrix.shape[-2:]
    batch = math.prod(matrix.shape[:-2])
    if min(rows, columns) > _BLOCK:
        return None  # MPSGraph multiplies by blocks of reflectors
    out = matrix.mT.contiguous().clone().mT  # column by column
    factors = empty((*matrix.shape[:-2], min(rows, columns)), matrix.dtype)
    params = {
        "num_batch_dims": matrix.dim() - 2,
        "A_sizes": list(out.shape),
        "A_strides": list(out.stride()),
        "tau_strides": list(factors.stride()),
    }
    if _BLOCK < rows <= _MOST:  # a SIMD group for each column, its lanes for so many rows
        each = max(_NARROWEST, 1 << (-(-rows // _LANES) - 1).bit_length())
        name, buffers, width = f"geqrf_panel_{each}", [out, factors, params], columns * _LANES
    else:
        room = empty((batch, rows), matrix.dtype)
        name, buffers = "geqrf_float", [out, factors, params, room]
        width = _LANES if max(rows, columns) <= _BLOCK else _MOST
    launch = Launch(name, tuple(buffers), (batch * width, 1, 1), (width, 1, 1))
    return Work((out, factors), (launch,))


def _inverse(call: KernelCall) -> Work | None:
    """Of matrices of one to four rows, as torch 2.15 finds it: a thread each."""
    matrix = call.given["A"]
    if not call.makes(matrix) or matrix.dtype != torch.float32 or call.given["check_errors"]:
        return None
    size = matrix.shape[-1]
    name = f"luInvSmall_{size}"
    if size > _SMALL:
        return None
    batch = matrix.reshape(-1, size, size)
    out = empty(matrix.shape, matrix.dtype).mT
    info = empty(matrix.shape[:-2], torch.int32)
    strides = (*batch.stride(), size * size, *out.stride()[-2:])
    names = (f"{which}_{kind}stride" for which in "AX" for kind in "brc")
    params = dict(zip(names, strides, strict=True))
    return Work((out, info), (Launch(name, (batch, out, info, params), (len(batch),)),))


def _laid(x: torch.Tensor) -> torch.Tensor:
    """The matrix as it lies, if it does so without gaps; else a copy row by row."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


def _triangular(call: KernelCall) -> Work | None:
    a, b, left = call.given["self"], call.given["B"], call.given["left"]
    if not call.makes(a, b) or a.dtype != torch.float32 or b.dtype != a.dtype:
        return None
    batch = batch_of(a, b)
    size = a.shape[-1]
    sides = b.shape[-1] if left else b.shape[-2]
    if size not in _SIZES or sides < _FEWEST:
        return None
    a, b = a.expand(*batch, size, size).contiguous(), _laid(b.expand(*batch, *b.shape[-2:]))
    out = empty((*batch, b.shape[-1], b.shape[-2]), b.dtype).mT
    given, found = (b, out) if left else (b.mT, out.mT)
    upper, unit = call.given["upper"], call.given["unitriangular"]
    plain = left and not upper and unit and sides % 8 == 0
    name = f"triangular_solve_small_{'' if plain else 'general_'}{size}"
    count = math.prod(batch)
    if not count:
        return None
    params = {
        "nbatch": count,
        "n": size,
        "k": sides,
        "upper": upper,
        "transpose": not left,
        "conj": False,
        "unit": unit,
        "b_col_major": not given.is_contiguous(),
        "x_col_major": not found.is_contiguous(),
    }
    threads = _THREADS * size
    return Work((out,), (Launch(name, (a, b, out, params), (count * threads, 1, 1), (threads, 1, 1)),))


LINALG: dict[str, Describe] = {
    "linalg_inv_ex": _inverse,
    "linalg_cholesky_ex": _cholesky,
    "linalg_qr": _qr,
    "geqrf": _reflectors,
    "linalg_householder_product": _householder,
    "linalg_solve_triangular": _triangular,
}
