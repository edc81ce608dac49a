"""Systems of 16, 32 or 64 equations with a triangular matrix and eight or more right-hand sides, of torch 2.15.

Source: linalg_solve_triangular_mps_impl and triangular_solve_metal in libtorch_cpu of torch 2.15's macOS wheel, for
chips without units for tensors. A group of threads solves one system. Other sizes take threadgroup memory whose length
comes with the launch.
"""

from __future__ import annotations

import math

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._elements import batch_of, have_numbers

_SIZES = (16, 32, 64)
_FEWEST = 8  # right-hand sides
_THREADS = 4  # of each equation


def _laid(x: torch.Tensor) -> torch.Tensor:
    """The matrix as it lies, if it does so without gaps; else a copy row by row."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


def _triangular(call: Call) -> Work | None:
    a, b, left = call.given["self"], call.given["B"], call.given["left"]
    if call.foreign or call.written or not have_numbers((a, b)) or a.dtype != torch.float32 or b.dtype != a.dtype:
        return None
    batch = batch_of(a, b)
    size = a.shape[-1]
    sides = b.shape[-1] if left else b.shape[-2]
    if size not in _SIZES or sides < _FEWEST:
        return None
    a, b = a.expand(*batch, size, size).contiguous(), _laid(b.expand(*batch, *b.shape[-2:]))
    out = torch.empty((*batch, b.shape[-1], b.shape[-2]), dtype=b.dtype, device="cpu").mT
    given, found = (b, out) if left else (b.mT, out.mT)
    upper, unit = call.given["upper"], call.given["unitriangular"]
    plain = left and not upper and unit and sides % 8 == 0
    name = call.first([f"triangular_solve_small_{'' if plain else 'general_'}{size}"])
    count = math.prod(batch)
    if name is None or not count:
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


SOLVES: dict[str, Describe] = {"linalg_solve_triangular": _triangular}
