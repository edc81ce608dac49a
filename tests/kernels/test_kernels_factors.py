"""Launches of factors, triangular systems, and convolutions that torch 2.15 keeps from other libraries."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.kernels.launches import Work
from described import declines, describe, launch_of

LATER = (2, 15)


@pytest.mark.parametrize(
    ("size", "sides", "upper", "unit", "left", "kernel"),
    [
        (16, 8, False, True, True, "triangular_solve_small_16"),
        (32, 9, False, True, True, "triangular_solve_small_general_32"),
        (64, 8, True, True, True, "triangular_solve_small_general_64"),
        (64, 8, False, False, True, "triangular_solve_small_general_64"),
        (16, 16, False, True, False, "triangular_solve_small_general_16"),
    ],
)
def test_small_triangles(size: int, sides: int, upper: bool, unit: bool, left: bool, kernel: str) -> None:
    """Below a diagonal of ones, and with eight right-hand sides at a time, there is a kernel of its own."""
    b = torch.zeros(3, size, sides) if left else torch.zeros(3, sides, size)
    given = {"self": torch.zeros(size, size), "B": b, "upper": upper, "left": left, "unitriangular": unit}
    launch = launch_of(describe("linalg_solve_triangular", **given))
    assert (launch.kernel, launch.threads, launch.group) == (kernel, (3 * 4 * size, 1, 1), (4 * size, 1, 1))
    assert launch.buffers[0].shape == (3, size, size)
    assert launch.buffers[3] == {
        "nbatch": 3,
        "n": size,
        "k": sides,
        "upper": upper,
        "transpose": not left,
        "conj": False,
        "unit": unit,
        "b_col_major": not left,
        "x_col_major": left,
    }


def test_sides_of_a_triangle_that_lie_column_by_column() -> None:
    """Are read as they lie; a triangle for all of a batch is copied for each."""
    b = torch.zeros(3, 10, 16).mT
    given = {"upper": False, "left": True, "unitriangular": True}
    launch = launch_of(describe("linalg_solve_triangular", self=torch.zeros(16, 16), B=b, **given))
    triangle, sides, _, params = launch.buffers
    assert (launch.kernel, params["k"]) == ("triangular_solve_small_general_16", 10)
    assert (triangle.shape, triangle.is_contiguous(), sides.data_ptr()) == ((3, 16, 16), True, b.data_ptr())
    assert (params["b_col_major"], params["x_col_major"]) == (True, True)


@pytest.mark.parametrize(("size", "sides"), [(17, 8), (16, 7), (128, 8)])
def test_triangles_that_take_room_of_a_launch(size: int, sides: int) -> None:
    """Other sizes and few right-hand sides."""
    given = {"self": torch.zeros(size, size), "B": torch.zeros(size, sides), "upper": True}
    assert declines("linalg_solve_triangular", **given, left=True, unitriangular=False)


@pytest.mark.parametrize(
    ("shape", "kernel", "width"),
    [
        ((2, 40, 7), "geqrf_panel_8", 7 * 32),
        ((300, 20), "geqrf_panel_16", 20 * 32),
        ((1024, 5), "geqrf_panel_32", 5 * 32),
        ((20, 20), "geqrf_float", 32),
        ((20, 50), "geqrf_float", 1024),
        ((1025, 3), "geqrf_float", 1024),
    ],
)
def test_reflectors(shape: tuple[int, ...], kernel: str, width: int) -> None:
    """A SIMD group a column where a lane has up to 32 rows; else one group of threads, with room for a vector."""
    work = describe("geqrf", release=LATER, self=torch.zeros(shape))
    launch = launch_of(work)
    batch = 2 if len(shape) == 3 else 1
    assert (launch.kernel, launch.threads, launch.group) == (kernel, (batch * width, 1, 1), (width, 1, 1))
    assert [one.shape[-1] for one in launch.buffers[3:]] == ([shape[-2]] if kernel == "geqrf_float" else [])
    assert launch.buffers[2]["A_strides"][-2:] == [1, shape[-2]]


def test_what_a_panel_of_reflectors_is_told() -> None:
    """The sizes and strides of the matrices, which lie column by column, and of the factors."""
    launch = launch_of(describe("geqrf", release=LATER, self=torch.zeros(2, 40, 7)))
    assert launch.buffers[2] == {
        "num_batch_dims": 1,
        "A_sizes": [2, 40, 7],
        "A_strides": [280, 1, 40],
        "tau_strides": [7, 1],
    }
    assert declines("geqrf", release=LATER, self=torch.zeros(40, 33))


def test_reflections_by_blocks() -> None:
    """MPSGraph multiplies by them."""
    assert declines("geqrf", release=LATER, self=torch.zeros(33, 33))
    given = {"input": torch.zeros(40, 5), "tau": torch.zeros(5)}
    assert declines("linalg_householder_product", release=LATER, **given)
    assert describe("linalg_householder_product", **given) is not None


def _factored(*shape: int, dtype: torch.dtype = torch.float32) -> Work:
    return describe("linalg_lu_factor_ex", A=torch.zeros(*shape, dtype=dtype), pivot=True, check_errors=False)


def test_factors_of_one_panel() -> None:
    """Its pivots are exchanged in no other column, and a square matrix is transposed where it lies."""
    work = _factored(2, 20, 20)
    panel, turned = work.launches
    assert (panel.kernel, panel.threads, panel.group) == ("factorPanelLU_float_1_32", (64, 1, 1), (32, 1, 1))
    assert panel.buffers[3:] == ([20, 20], [0, 0, 0, 0])
    assert (turned.kernel, turned.threads, turned.group) == ("transposeInPlaceLU_float", (32, 8, 2), (32, 8, 1))
    factors, pivots, info = work.results
    assert (factors.stride(), pivots.shape, info.shape) == ((400, 1, 20), (2, 20), (2,))


def test_factors_of_several_panels() -> None:
    """After each its rows are exchanged on both sides, and what lies to the right is solved and subtracted."""
    names = [one.kernel.partition("_")[0] for one in _factored(70, 40).launches]
    panel = ["factorPanelLU", "laswpGatherLU", "trsmPanelLU", "gemmSimdLU"]
    assert names == [*panel, "factorPanelLU", "laswpGatherLU"]
    work = _factored(40, 70, dtype=torch.complex64)
    names = [one.kernel for one in work.launches]
    assert names[:4] == [
        "factorPanelLU_float2_1_32",
        "laswpGatherLU_float2",
        "trsmPanelLU_float2_32",
        "gemmTiledLU_float2",
    ]
    assert [target.stride() for target, _ in work.copies] == [(1, 40)]


def _windows(work: Work) -> list[tuple[Any, ...]]:
    """Of each launch the kernel's first word, its windows, and its threads."""
    return [(one.kernel.partition("_")[0], *one.buffers[4:6], one.threads) for one in work.launches]


def test_where_each_step_of_several_panels_goes() -> None:
    """The rows and columns of each, and a group of threads for so many of them."""
    assert _windows(_factored(70, 40)) == [
        ("factorPanelLU", [0, 0, 0, 0], (96, 1, 1)),
        ("laswpGatherLU", [0, 32, 0, 0], [0, 0, 32, 40], (256, 1, 1)),
        ("trsmPanelLU", [0, 32, 40, 32], (128, 1, 1)),
        ("gemmSimdLU", [32, 70, 32, 40], [0, 32, 0, 0], (128, 2, 1)),
        ("factorPanelLU", [32, 0, 0, 0], (64, 1, 1)),
        ("laswpGatherLU", [32, 8, 0, 0], [0, 32, 40, 40], (256, 1, 1)),
    ]
    assert _windows(_factored(40, 70, dtype=torch.complex64))[1:4] == [
        ("laswpGatherLU", [0, 32, 0, 0], [0, 0, 32, 70], (512, 1, 1)),
        ("trsmPanelLU", [0, 32, 70, 32], (128, 1, 1)),
        ("gemmTiledLU", [32, 40, 32, 70], [0, 32, 0, 0], (48, 16, 1)),
    ]
    turned = _factored(40, 40).launches[-1]
    assert (turned.kernel, turned.threads) == ("transposeInPlaceLU_float", (64, 16, 1))


@pytest.mark.parametrize(("size", "exchanged"), [(1024, [0, 0, 32, 1024]), (1025, [0, 0, 32, 64])])
def test_blocks_of_large_matrices(size: int, exchanged: list[int]) -> None:
    """Of more than 1024 rows two panels at a time: rows are exchanged within both first."""
    swaps = [one for one in _factored(size, size).launches if one.kernel == "laswpGatherLU_float"]
    assert next(one for one in swaps if one.buffers[4][1] == 32).buffers[5] == exchanged


@pytest.mark.parametrize(
    ("rows", "panel", "threads"),
    [(1025, "factorPanelLU_float_2_16", 544), (2049, "factorPanelLU_float_4_8", 544)],
)
def test_panels_of_many_rows(rows: int, panel: str, threads: int) -> None:
    """Two or four rows a thread, and as much fewer columns at once."""
    first = _factored(rows, 20).launches[0]
    assert (first.kernel, first.group) == (panel, (threads, 1, 1))


def test_panels_that_go_column_by_column() -> None:
    """Of more than 4096 rows: a search, and then a pivot and what it takes from the rest, for each column."""
    launches = _factored(4100, 2).launches
    assert [one.kernel for one in launches] == [
        "luStreamUpdate_float",
        *["luStreamPivot_float", "luStreamUpdate_float"] * 2,
    ]
    search, pivot, update = launches[:3]
    assert (search.buffers[4], search.threads) == ([0, 0, 3, 1], (171 * 256, 1, 1))
    assert (pivot.buffers[4], update.buffers[4]) == ([0, 0, 171, 0], [0, 0, 3, 0])
    assert pivot.buffers[6] is search.buffers[6]
    search, _, update = _factored(4097, 1).launches
    assert (search.buffers[4], update.buffers[4]) == ([0, 0, 3, 1], [0, 0, 2, 0])
    assert (search.threads, update.threads) == ((171 * 256, 1, 1), (256 * 256, 1, 1))


@pytest.mark.parametrize(
    ("adjoint", "expected"),
    [
        (False, ["luApplyPivotsRHS_float", "trsmDiagSolveLU_float_lower_unit", "trsmDiagSolveLU_float_upper_nonunit"]),
        (True, ["trsmDiagSolveLU_float_lower_nonunit", "trsmDiagSolveLU_float_upper_unit", "luApplyPivotsRHS_float"]),
    ],
)
def test_systems_by_factors(adjoint: bool, expected: list[str]) -> None:
    """Down and up again, beside the right-hand sides; rows are exchanged before, or after."""
    given = {"LU": torch.eye(5), "pivots": torch.ones(5, dtype=torch.int32), "B": torch.zeros(2, 5, 3)}
    work = describe("linalg_lu_solve", **given, left=True, adjoint=adjoint)
    assert [one.kernel for one in work.launches] == expected
    assert work.launches[0].buffers[0].shape == (2, 5, 8)
    assert [tuple(one.shape) for _, one in work.copies] == [(2, 5, 3)]
    assert declines("linalg_lu_solve", **given, left=False, adjoint=adjoint)


@pytest.mark.parametrize("adjoint", [False, True])
def test_where_each_step_of_a_system_goes(adjoint: bool) -> None:
    """Blocks of 32 rows down and up again, each taken from the rest of the right-hand sides."""
    given = {"LU": torch.eye(40), "pivots": torch.ones(40, dtype=torch.int32), "B": torch.zeros(40, 3)}
    swap = ("luApplyPivotsRHS", [40, 3, 40, int(adjoint)], (3, 1, 1))
    expected = [
        ("trsmDiagSolveLU", [0, 40, 43, 32], (128, 1, 1)),
        ("gemmSimdLU", [32, 40, 40, 43], [0, 32, 0, 0], (128, 1, 1)),
        ("trsmDiagSolveLU", [32, 40, 43, 8], (128, 1, 1)),
        ("trsmDiagSolveLU", [32, 40, 43, 8], (128, 1, 1)),
        ("gemmSimdLU", [0, 32, 40, 43], [32, 8, 0, 0], (128, 1, 1)),
        ("trsmDiagSolveLU", [0, 40, 43, 32], (128, 1, 1)),
    ]
    found = _windows(describe("linalg_lu_solve", **given, left=True, adjoint=adjoint))
    assert found == ([*expected, swap] if adjoint else [swap, *expected])


def _convolution(x: torch.Tensor, weight: torch.Tensor, groups: int = 1, **more: Any) -> dict[str, Any]:
    given = {"stride": [1], "padding": [0], "dilation": [1], **more}
    return {"input": x, "weight": weight, "bias": None, "transposed": False, "groups": groups, **given}


def _convolved(x: torch.Tensor, weight: torch.Tensor, groups: int = 1, **more: Any) -> Work:
    return describe("convolution", **_convolution(x, weight, groups, **more))


def _named(words: str, *values: int) -> dict[str, int]:
    """The fields of a struct."""
    return dict(zip(words.split(), values, strict=True))


@pytest.mark.parametrize(("last", "kernel"), [(False, "ncl"), (True, "nlc")])
def test_channels_alone(last: bool, kernel: str) -> None:
    """A thread has eight neighbours; the result lies as what it is made of."""
    x = torch.zeros(2, 30, 6).mT if last else torch.zeros(2, 6, 30)
    work = _convolved(x, torch.zeros(12, 1, 5), groups=6, padding=[2])
    launch = launch_of(work)
    assert (launch.kernel, launch.threads) == (f"conv1d_depthwise_{kernel}_float", (4, 12, 2))
    assert launch.buffers[0].is_contiguous()
    assert work.results[0].is_contiguous() != last
    params = launch.buffers[3]
    sizes = _named("N C_in C_out H W outH outW", 2, 6, 12, 1, 30, 1, 30)
    steps = _named("kH kW sH sW padH padW dH dW", 1, 5, 1, 1, 0, 2, 1, 1)
    assert params == sizes | steps | _named("C_in_per_group C_out_per_group has_bias", 1, 2, False)


@pytest.mark.parametrize(
    ("shape", "weight", "groups", "kernel"),
    [
        ((2, 6, 90), (8, 3, 5), 2, "conv3d_simd_float_64_64_2_2"),
        ((2, 6, 40), (8, 3, 5), 2, "conv3d_simd_float_32_64_1_2"),
        ((2, 4, 5, 6, 20), (6, 2, 3, 2, 3), 2, "conv3d_simd_float_64_64_2_2"),
        ((1, 1, 90), (70, 1, 3), 1, "conv3d_simd_float_64_64_2_2"),
    ],
)
def test_tiles(shape: tuple[int, ...], weight: tuple[int, ...], groups: int, kernel: str) -> None:
    """Of small planes half as many rows; lines are volumes of one layer and one row."""
    dims = len(shape) - 2
    given = {"stride": [1] * dims, "padding": [0] * dims, "dilation": [1] * dims}
    launch = launch_of(_convolved(torch.zeros(shape), torch.zeros(weight), groups, **given))
    assert launch.kernel == kernel
    assert launch.buffers[0].shape[-1] == shape[1]
    assert launch.buffers[1].shape[-2:] == (weight[1], weight[0])


def test_what_a_volume_tells_its_kernel() -> None:
    """Sizes and steps of each dimension; a group of threads for 64 of a layer's results and 64 channels of a group."""
    given = {"stride": [1, 2, 1], "padding": [1, 0, 2], "dilation": [1, 1, 2]}
    x, weight = torch.zeros(2, 4, 5, 6, 20), torch.arange(216.0).view(6, 2, 3, 2, 3)
    launch = launch_of(_convolved(x, weight, 2, **given))
    assert (launch.kernel, launch.threads, launch.group) == (
        "conv3d_simd_float_64_64_2_2",
        (256, 1, 10),
        (128, 1, 1),
    )
    plane = _named("N C_in C_out H W outH outW", 2, 4, 6, 6, 20, 3, 20)
    plane |= _named("kH kW sH sW padH padW dH dW", 2, 3, 2, 1, 0, 2, 1, 2)
    plane |= _named("C_in_per_group C_out_per_group has_bias", 2, 3, False)
    assert launch.buffers[3] == {"conv2d": plane} | _named("D outD kD sD padD dD out_ncdhw", 5, 5, 3, 1, 1, 1, True)
    assert launch.buffers[1].is_contiguous()
    assert launch.buffers[1][1, 0, 2, 1, 4] == weight[4, 1, 1, 0, 2]
    steps = launch_of(_convolved(x, weight, 2, stride=[3, 1, 1], padding=[1, 0, 0], dilation=[2, 1, 1])).buffers[3]
    assert (steps["sD"], steps["dD"], steps["padD"], steps["outD"]) == (3, 2, 1, 1)
    last = _convolved(x.to(memory_format=torch.channels_last_3d), weight, 2, **given)
    assert launch_of(last).buffers[3]["out_ncdhw"] is False
    assert last is not None
    assert last.results[0].is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize(
    ("shape", "weight", "more"),
    [
        ((1, 4, 8), (6, 4, 8), {}),
        ((1, 1100, 3), (6, 1100, 2), {}),
        ((1, 2, 300), (6, 2, 256), {}),
        ((1, 2, 3, 4, 5), (6, 2, 1, 1, 1), {}),
        ((1, 3, 8, 8, 8), (6, 3, 4, 4, 8), {"stride": [4, 4, 8]}),
        ((1, 160, 4, 4, 4), (6, 160, 3, 3, 3), {}),
    ],
)
def test_convolutions_that_are_products_of_matrices(
    shape: tuple[int, ...], weight: tuple[int, ...], more: dict[str, list[int]]
) -> None:
    """One result, few results of many numbers, single voxels, patches side by side; a long kernel along a line."""
    assert declines("convolution", **_convolution(torch.zeros(shape), torch.zeros(weight), **more))


def test_few_results_of_halves() -> None:
    """Only float32 is multiplied as matrices then."""
    x, weight = torch.zeros(1, 160, 4, 4, 4).half(), torch.zeros(6, 160, 3, 3, 3).half()
    given = {"stride": [1] * 3, "padding": [0] * 3, "dilation": [1] * 3}
    assert launch_of(_convolved(x, weight, **given)).kernel == "conv3d_simd_half_32_64_1_2"


def test_few_rows_for_many_matrices() -> None:
    """A SIMD group a number, sixteen numbers of a row a group of threads."""
    given = {"offs": torch.tensor([1, 2, 2, 4], dtype=torch.int32), "bias": None, "out_dtype": None}
    x, matrices = torch.zeros(4, 64), torch.zeros(4, 72, 64).mT
    launch = launch_of(describe("_grouped_mm", self=x, mat2=matrices, **given))
    assert (launch.kernel, launch.threads) == ("grouped_mm_few_rows_float_u32", (5 * 512, 4, 1))
    by_rows = torch.zeros(4, 64, 72)
    assert launch_of(describe("_grouped_mm", self=x, mat2=by_rows, **given)).kernel == "grouped_mm_rows_float_bm16_u32"
