"""Launches of norms along dimensions, and of cross products."""

from __future__ import annotations

import torch
from tests.described import declines, describe, launch_of

X = torch.ones(6, 9, 40)


def test_norms_of_rows() -> None:
    """Sums of sizes and of squares along the last dimension; a SIMD group a row, whole groups of eight."""
    launch = launch_of(describe("linalg_vector_norm", self=X, ord=2, dim=[-1], keepdim=False, dtype=None))
    assert (launch.kernel, launch.buffers[2:]) == ("norm_l2_reduction_inner_float_float", ([54, 40], 0.0))
    assert (launch.threads, launch.group) == ((7 * 256,), (256,))
    assert launch_of(describe("norm", self=X, p=1, dim=[2], keepdim=True)).kernel == (
        "norm_l1_reduction_inner_float_float"
    )


def test_other_norms() -> None:
    """As many threads as there are numbers, 1024 at most; complex numbers have real norms."""
    launch = launch_of(describe("linalg_vector_norm", self=X, ord=3, dim=[0, 2], keepdim=False, dtype=None))
    assert (launch.kernel, launch.threads, launch.group) == ("norm_float_float", (9 * 240,), (240,))
    params = launch.buffers[2]
    assert (params["p"], params["reduction_size"], params["output_sizes"]) == (3.0, 240, [1, 9, 1])
    assert params["output_strides"] == [9, 1, 1]
    launch = launch_of(describe("norm", self=X.to(torch.complex64), p=None))
    assert (launch.kernel, launch.group, launch.buffers[1].dtype) == ("norm_float2_float", (1024,), torch.float32)


def test_norms_that_are_left_to_others() -> None:
    """Of a later release, into another dtype, of no number."""
    given = {"ord": 2, "dim": None, "keepdim": False, "dtype": None}
    assert declines("linalg_vector_norm", release=(2, 14), self=X, **given)
    assert declines("linalg_vector_norm", self=X, **{**given, "dtype": torch.float16})
    assert declines("linalg_vector_norm", self=X[:0], **given)


def test_cross_products() -> None:
    """Dense by one stride; else by the sizes of the other dimensions and all strides."""
    launch = launch_of(describe("linalg_cross", self=X[0, :3], other=X[0, 3:6], dim=0))
    assert (launch.kernel, launch.buffers[3:], launch.threads) == ("cross_dense_float", (40,), (40,))
    launch = launch_of(describe("linalg_cross", self=X[0, :, :3], other=X[0, :1, :3], dim=-1))
    assert (launch.kernel, launch.threads) == ("cross_strided_float", (9,))
    assert launch.buffers[3:] == ([9], [3, 1], [40, 1], [0, 1], 2, 1)
