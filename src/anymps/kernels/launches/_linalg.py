"""Factors of matrices that Metal kernels find.

Source: `LinearAlgebra.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations/`. Solvers and LU factors of torch
2.13 are those of Metal Performance Shaders, which no wheel holds.
"""

from __future__ import annotations

import math

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work, empty
from anymps.kernels.launches._elements import NAMES
from anymps.kernels.launches._unary import launch_of_one

_BLOCK = 32
_CHOLESKY = (32, 8, 1)  # threads of a group
_MOST = 1024
_LARGEST = 512  # rows or columns that the kernel of QR takes


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


LINALG: dict[str, Describe] = {
    "linalg_cholesky_ex": _cholesky,
    "linalg_qr": _qr,
}
