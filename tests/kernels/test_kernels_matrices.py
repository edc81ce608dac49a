"""Launches of matrix products, of quantised ones, and of factors of matrices."""

from __future__ import annotations

import torch
from tests.described import declines, describe, launch_of


def test_weights_of_four_bits() -> None:
    """Packed by words of eight, and multiplied by four columns a SIMD group."""
    weight = torch.ones(32, 32, dtype=torch.uint8)
    launch = launch_of(describe("_convert_weight_to_int4pack", self=weight, innerKTiles=2))
    assert (launch.kernel, launch.buffers[2], launch.threads) == ("weight_to_int4pack", [32, 8], (32, 8, 1))
    packed = launch.buffers[1]
    assert packed.shape == (4, 2, 32, 1)
    given = {"self": torch.ones(5, 64), "mat2": packed, "qScaleAndZeros": torch.ones(2, 32, 2)}
    launch = launch_of(describe("_weight_int4pack_mm", qGroupSize=32, **given))
    assert (launch.kernel, launch.threads, launch.group) == ("int4pack_mm_32_float", (256, 1, 5), (64, 1, 1))
    assert launch.buffers[4] == [5, 64, 32]
    assert declines("_weight_int4pack_mm", qGroupSize=16, **given)


def test_cholesky() -> None:
    """Block by block, then the other triangle is cut off; the last block has nothing behind it."""
    work = describe("linalg_cholesky_ex", self=torch.eye(70), upper=False, check_errors=False)
    names = ["factorDiagonalBlockL", "applyTRSML", "applySYRKL"]
    assert [one.kernel for one in work.launches] == [*names * 2, names[0], "tril_inplace_int_float"]
    assert [one.threads for one in work.launches[:3]] == [(32, 8, 1), (32, 16, 1), (32, 24, 1)]
    assert work.launches[1].buffers[1:] == (None, 70, 32, 0)
    assert work.results[0].stride() == (1, 70)
    assert declines("linalg_cholesky_ex", self=torch.eye(70), upper=False, check_errors=True)


def test_qr() -> None:
    """One group a matrix, and copies of what is kept of its results."""
    work = describe("linalg_qr", A=torch.ones(2, 9, 4), mode="reduced")
    first, *copies = work.launches
    assert (first.kernel, first.threads, first.buffers[4]) == (
        "linalg_qr_householder_float",
        (2048, 1, 1),
        {"m": 9, "n": 4},
    )
    assert [one.kernel for one in copies] == ["copy_identity_strided_float_float"] * 2
    assert [one.shape for one in work.results] == [(2, 9, 4), (2, 4, 4)]
    assert declines("linalg_qr", A=torch.ones(2, 9, 4), mode="r")
