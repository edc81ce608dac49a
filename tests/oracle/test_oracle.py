"""The comparison with PyTorch's own kernels: how results are judged, and that the page tells its numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from .compare import Difference
from .coverage import LEFT_OUT, REACHED, UNEXPLAINED, count, family, table
from .page import load, page

DOCS = Path(__file__).parents[2] / "docs"
RARE = "sorts, concatenations and pads of unsigned integers of 16 to 64 bits, pads of complex32"


def judged(device: object, kernel: object, dtype: torch.dtype) -> Difference:
    """What is said of two results."""
    found = Difference()
    left, right = torch.tensor(device, dtype=dtype), torch.tensor(kernel, dtype=dtype)
    found.add(left, right, (left,))
    return found


def test_equal_bits_are_equal() -> None:
    """Any NaN equals any other; zeros of two signs do not."""
    values = [1.0, -0.0, math.inf, math.nan]
    assert judged(values, values, torch.float32).verdict == "equal"
    assert judged([0.0], [-0.0], torch.float32).ulps == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_distance_in_units_of_the_last_place(dtype: torch.dtype) -> None:
    """Neighbours are one unit apart, across powers of two and zero, too."""
    one = torch.tensor(1.0, dtype=dtype)
    below = (1 - torch.finfo(dtype).eps / 2) * one
    assert judged([one.item()], [below.item()], dtype).ulps == 1
    assert judged([-one.item()], [-below.item()], dtype).verdict == "ulp"


def test_another_number_is_different() -> None:
    """Far apart, NaN on one side, infinite on one side, another integer; the first is told."""
    assert judged([1.0], [1.1], torch.float32).verdict == "different"
    assert judged([math.nan], [1.0], torch.float32).verdict == "different"
    assert judged([math.inf], [3e38], torch.float32).verdict == "different"
    found = judged([1, 5], [1, 6], torch.int32)
    assert (found.far, found.example) == (1, "of 5: 5 on the device, 6 by the kernel")
    assert judged([1 + 2j], [1 + 3j], torch.complex64).verdict == "different"


def test_subnormal_results_are_left_out() -> None:
    """The kernels give zero for them; half precision has no such rule."""
    found = judged([1e-40, 1.0], [0.0, 1.0], torch.float32)
    assert (found.verdict, found.flushed) == ("equal", 1)
    assert judged([1e-7], [0.0], torch.float16).verdict == "ulp"


def test_the_page_tells_its_numbers() -> None:
    """docs/fidelity-kernels.md is what `python -m tests.oracle --write docs/fidelity` renders."""
    assert (DOCS / "fidelity-kernels.md").read_text(encoding="utf-8") == page(DOCS / "fidelity")
    assert all(len(document["rows"]) >= 400 for document in load(DOCS / "fidelity"))


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_kernels_beside_the_device_where_they_were_added(virtual_device: torch.device) -> None:
    """A slice: an operator whose kernels are exact equals the device bit for bit."""
    import anymps
    from anymps.kernels import added_releases

    release = torch.__version__.partition("+")[0]
    if release not in added_releases():
        pytest.skip(f"the Metal kernels of torch {release} have not been added (anymps kernels add)")
    pytest.importorskip("llvmlite", reason="needs the extra kernels")
    from .pairs import compare_all

    rows = list(compare_all(anymps.metal_kernels(), ["bitwise_not"]))
    assert len(rows) > 5
    assert {row["verdict"] for row in rows} == {"equal"}


@pytest.mark.parametrize(
    ("kernel", "release", "expected"),
    [
        ("exp_dense_scalar_float_float", (2, 13), "compared"),
        ("cumsum_innermost_float", (2, 13), "compared"),
        ("sum_reduction_outer_float_float", (2, 15), "compared"),
        ("matmul_float", (2, 15), "matrix products, factorizations"),
        ("upsample_bilinear2d_aa_backward_float", (2, 15), "compared"),
        (
            "upsample_nearest2d_backward_half_u64",
            (2, 15),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("ctc_loss_half_int_int32_t", (2, 15), "dtypes that the CPU's code does not support"),
        ("prefill_attention_float16_bq32_bk32_bd64_wm4_wn1_hm0_dc0_maskfloat16", (2, 13), "compared"),
        ("cumsum_innermost_float", (2, 15), "compared"),
        ("applySYRKL_float", (2, 15), "compared"),
        ("int8pack_mv_float", (2, 13), "products with weights of eight bits"),
        ("ampNonFiniteCheckAndUnscaleSingle_half", (2, 13), "scaling of gradients of odd layouts and types"),
        ("randperm_dedup_islands_int", (2, 13), "permutations of more than 32,768 numbers"),
        ("sum_reduction_outer_float_float", (2, 13), "compared"),
        (
            "grid_sampler_3d_backward_i64_half",
            (2, 13),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("upsample_bilinear2d_aa_half", (2, 13), "dtypes that the CPU's code does not support"),
        ("mb_merge_uint_tptg1024_u16", (2, 13), "compared"),
        ("mb_merge_long_tptg128", (2, 13), "sorts of block sizes that no input reaches"),
        ("sort_block_ushort_tptg64", (2, 13), RARE),
        ("cat_int32_t_float_uint", (2, 13), RARE),
        ("nobody_knows_this_one", (2, 15), UNEXPLAINED),
        (
            "constant_pad_nd_ulong_u64",
            (2, 15),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("constant_pad_nd_dense_float8_e4m3fn", (2, 15), "floats of eight bits"),
        ("eq_dense_bool_float8_e4m3fn", (2, 15), "floats of eight bits"),
        ("unique_emit_bool_64", (2, 15), "repetitions by sums of 32 bits, and of truth values"),
        (
            "conv3d_simd_long_half_64_64_2_2",
            (2, 15),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("householder_block_float2", (2, 15), "blocks of reflections"),
        ("poisson_half", (2, 15), "samplers by rejection"),
        ("reflection_pad1d_backward_half2_i32", (2, 15), "dtypes that the CPU's code does not support"),
    ],
)
def test_every_kernel_has_a_line(kernel: str, release: tuple[int, int], expected: str) -> None:
    """It was compared, or the page says why not."""
    assert family(kernel, release) == expected


def test_no_kernel_is_without_a_launch_or_a_reason() -> None:
    """Each kernel of the wheels is run by an operator, or has a reason of its own, which the page tells."""
    for document in load(DOCS / "fidelity"):
        assert document["kernels"].keys() <= {REACHED, *LEFT_OUT} - {UNEXPLAINED}


def test_the_table_of_what_is_left_out() -> None:
    """How many kernels of each family, and the reason."""
    lines = table(count(["exp_dense_float_float", "assert_async_int", "assert_async_float"], (2, 13)))
    assert lines[0] == "1 of 3 kernels belong to operators that were compared, in at least one layout. The others:"
    assert lines[-1] == "| assertions | 2 | They compute nothing. |"
    counts = {document["torch"]: sum(document["kernels"].values()) for document in load(DOCS / "fidelity")}
    assert counts == {"2.13.0": 12998, "2.15.0": 18563}
