"""The comparison with PyTorch's own kernels: how results are judged, and that the page tells its numbers."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from . import card
from .compare import Difference
from .coverage import UNEXPLAINED, count, family, table
from .kept import Answers, KeepingLibrary, KeptLibrary, NotKept, Reading, digest, families_again, keeping, reading
from .page import load, render

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
    documents = load(DOCS / "fidelity")
    cards = card.load(DOCS / "fidelity")
    assert (DOCS / "fidelity-kernels.md").read_text(encoding="utf-8") == render(documents, cards)
    assert all(len(document["rows"]) >= 400 for document in documents)


def test_a_card_beside_the_host() -> None:
    """What both came to, and only the pairs that part, those of one kind in a row."""

    def row(dtype: str, verdict: str, ulps: int = 0, far: int = 0) -> dict[str, object]:
        seen = {"verdict": verdict, "ulps": ulps, "far": far, "elements": 9, "example": ""}
        return {"operator": "exp", "dtype": dtype, **seen}

    host = [row("float32", "equal"), row("float16", "equal"), row("int8", "ulp", 1), row("bool", "equal")]
    on_card = [
        row("float32", "ulp", 2),
        row("float16", "ulp", 2),
        row("int8", "ulp", 1),
        row("bool", "different", 0, 3),
    ]
    document = card.beside(host, on_card, "2.11.0", "H100", "2.13.0")
    assert document["counts"] == [[3, 1, 0], [0, 3, 1]]
    assert card.section(document)[-2:] == [
        "| exp | float32, float16 | equal | within 2 ulp |",
        "| exp | bool | equal | different in 3 of 9 |",
    ]


def test_kept_answers_stand_for_the_kernels() -> None:
    """By operator, dtype, shape and bits of the arguments; what a call writes comes back, too."""
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    answers = Answers()
    how = (True, "")  # groups of threads wait for each other; PYTORCH_MPS_PREFER_METAL is not set
    answers.by_call[digest("aten::add.Tensor", [x, y, 1, *how])] = [torch.tensor([4.0, 6.0])], []
    product = torch.tensor([3.0, 8.0])
    answers.by_call[digest("aten::mul_.Tensor", [x, y, *how])] = [product], [product]
    launcher = Reading(answers)
    added = launcher("aten::add.Tensor", [x.clone(), y, 1], [])
    assert added is not None
    assert added[0].tolist() == [4.0, 6.0]
    assert launcher("aten::add.Tensor", [x.half(), y, 1], []) is None
    assert launcher("aten::add.Tensor", [x, y + 1, 1], []) is None
    launcher("aten::mul_.Tensor", [x, y], [])
    assert x.tolist() == [3.0, 8.0]
    assert (answers.found, answers.missing) == (2, 2)


def test_a_call_is_made_again_from_what_was_kept(virtual_device: torch.device, tmp_path: Path) -> None:
    """With the arguments that it had, and compared with what the kernel answered; the file has equal tensors once."""
    x, places = torch.tensor([[5.0, 7.0]]), torch.tensor([[1, 1]])
    call = {
        "operator": "aten::gather",
        "arguments": {"self": x, "dim": 1, "index": places, "sparse_grad": False},
        "results": [torch.tensor([[7.0, 8.0]])],
        "written": [],
        "dtype": torch.float32,
        "deterministic": False,
    }
    lacking = {**call, "operator": "aten::no_such_operator"}
    Answers(families=[call, {**call, "arguments": {**call["arguments"], "self": x.clone()}}, lacking]).save(
        tmp_path / "kept"
    )
    answers = Answers.load(tmp_path / "kept")
    one, other = (kept["arguments"]["self"] for kept in answers.families[:2])
    assert one.data_ptr() == other.data_ptr()
    ((title, dtype, found),) = families_again(answers)
    assert (title, dtype, found.elements, found.far) == ("gather", torch.float32, 4, 2)
    assert found.example == "of 7.0: 7.0 on the device, 8.0 by the kernel"
    assert (answers.found, answers.missing) == (2, 1)


class _Doubling:
    """A kernel of one library that writes into its first buffer."""

    signature = SimpleNamespace(buffers=[SimpleNamespace(name="out"), SimpleNamespace(name="x")])

    def __call__(self, out: torch.Tensor, x: torch.Tensor, *, threads: int) -> None:
        out.copy_(2 * x)


def test_launches_are_kept_by_what_they_were_given() -> None:
    """What a kernel writes comes back for the same name, bits and grid; any other launch says that it is not there."""
    answers, x = Answers(), torch.tensor([1.0, 2.0])
    KeepingLibrary(answers, {"twice": _Doubling()})["twice"](torch.zeros(2), x, threads=2)  # type: ignore[arg-type]
    library, out = KeptLibrary(answers), torch.zeros(2)
    assert "twice" in library
    assert "thrice" not in library
    assert [one.name for one in library["twice"].signature.buffers] == ["out", "x"]
    library["twice"](out, x, threads=2)
    assert out.tolist() == [2.0, 4.0]
    for given, threads in ((x, 1), (x + 1, 2)):
        with pytest.raises(NotKept, match="a launch of twice was not kept"):
            library["twice"](torch.zeros(2), given, threads=threads)


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_kept_rows_are_those_of_the_kernels(virtual_device: torch.device, tmp_path: Path) -> None:
    """Families, single kernels and described launches: the same rows with the kernels and with what they answered."""
    import anymps
    from anymps.kernels import added_releases

    release = torch.__version__.partition("+")[0]
    if release not in added_releases():
        pytest.skip(f"the Metal kernels of torch {release} have not been added (anymps kernels add)")
    pytest.importorskip("llvmlite", reason="needs the extra kernels")
    from . import pairs

    names = ["bitwise_not", "argmax_reduction", "lerp", "renorm"]
    with keeping() as answers:
        ran = list(pairs.compare_all(KeepingLibrary(answers, anymps.metal_kernels()), names))
    answers.save(tmp_path / "kept")
    with reading(tmp_path / "kept") as answers:
        kept = list(pairs.compare_all(KeptLibrary(answers), names))
    assert {row["operator"] for row in ran} >= {"bitwise_not", "argmax", "lerp", "renorm"}
    assert kept == ran
    assert answers.missing == 0


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
        ("clamp_strided_cast_float", (2, 13), "compared"),
        ("lerp_tensor_strided_half", (2, 13), "compared"),
        ("lerp_tensor_strided_2d_half", (2, 13), "compared"),
        ("cumsum_innermost_float", (2, 13), "compared"),
        ("sum_reduction_outer_float_float", (2, 15), "compared"),
        ("matmul_float", (2, 15), "matrix products, factorizations"),
        ("upsample_bilinear2d_aa_backward_float", (2, 15), "compared"),
        (
            "upsample_nearest2d_backward_half_u64",
            (2, 15),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("gemv_nt_half_8_2_ab_xs_strided", (2, 15), "compared"),
        ("ctc_loss_half_int_int32_t", (2, 15), "dtypes that the CPU's code does not support"),
        ("mish_dense_ilp4_float", (2, 15), "compared"),
        ("cumsum_innermost_transposed_float", (2, 13), "compared"),
        ("prefill_attention_float16_bq32_bk32_bd64_wm4_wn1_hm0_dc0_maskfloat16", (2, 13), "compared"),
        ("cumsum_innermost_float", (2, 15), "compared"),
        ("sdpa_vector_float_64_64_masknone", (2, 15), "compared"),
        ("softmax_strided_partial_float_u32", (2, 15), "compared"),
        ("pow_inner_contiguous_float_float", (2, 15), "compared"),
        ("applySYRKL_float", (2, 15), "compared"),
        ("int8pack_mv_float", (2, 13), "products with weights of eight bits"),
        ("fused_adamw_float_float", (2, 13), "compared"),
        ("ampNonFiniteCheckAndUnscaleSingle_half", (2, 13), "scaling of gradients of odd layouts and types"),
        ("uniform_dist_half", (2, 13), "compared"),
        ("randperm_small_int", (2, 13), "compared"),
        ("randperm_dedup_islands_int", (2, 13), "permutations of more than 32,768 numbers"),
        ("sum_reduction_outer_float_float", (2, 13), "compared"),
        ("grid_sampler_2d_bicubic_zeros_i32_half", (2, 13), "compared"),
        ("grid_sampler_2d_backward_nearest_input_i32_half", (2, 13), "compared"),
        (
            "grid_sampler_3d_backward_i64_half",
            (2, 13),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("upsample_bilinear2d_aa_float", (2, 13), "compared"),
        ("upsample_bilinear2d_aa_half", (2, 13), "dtypes that the CPU's code does not support"),
        ("mb_merge_uint_tptg1024_u16", (2, 13), "compared"),
        ("mb_merge_long_tptg128", (2, 13), "sorts of block sizes that no input reaches"),
        ("sort_block_ushort_tptg64", (2, 13), RARE),
        ("cat_int32_t_float_uint", (2, 13), RARE),
        ("cat_int32_t_float_float", (2, 13), "compared"),
        ("histogramdd_half", (2, 13), "compared"),
        ("histogramdd_long", (2, 13), "dtypes that the CPU's code does not support"),
        ("kernel_index_offset", (2, 13), "compared"),
        ("argmax_reduction_outer_float", (2, 13), "compared"),
        ("nobody_knows_this_one", (2, 15), "convolutions, losses, factorizations and others"),
        ("constant_pad_nd_float2_u32", (2, 15), "compared"),
        (
            "constant_pad_nd_ulong_u64",
            (2, 15),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("constant_pad_nd_dense_float8_e4m3fn", (2, 15), "floats of eight bits"),
        ("eq_dense_bool_float8_e4m3fn", (2, 15), "floats of eight bits"),
        ("linspace_integral_strided_long", (2, 15), "compared"),
        ("linspace_long_i32", (2, 15), "compared"),
        ("unique_emit_bool_64", (2, 15), "repetitions by sums of 32 bits, and of truth values"),
        ("unique_emit_float_64", (2, 15), "compared"),
        ("sort_block_fkey_float_tptg1024", (2, 15), "compared"),
        (
            "conv3d_simd_long_half_64_64_2_2",
            (2, 15),
            "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more",
        ),
        ("householder_block_float2", (2, 15), "blocks of reflections"),
        ("poisson_half", (2, 15), "samplers by rejection"),
        ("linspace_long_i64", (2, 15), "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more"),
        ("logspace_bool_i32", (2, 15), "dtypes that the CPU's code does not support"),
        ("constant_pad_nd_dense_half2", (2, 15), RARE),
        ("reflection_pad1d_backward_half2_i32", (2, 15), "dtypes that the CPU's code does not support"),
        ("replication_pad3d_forward_bool_i32", (2, 15), "compared"),
    ],
)
def test_every_kernel_has_a_line(kernel: str, release: tuple[int, int], expected: str) -> None:
    """It was compared, or the page says why not."""
    assert family(kernel, release) == expected


@pytest.mark.parametrize(("release", "most"), [("2.13.0", 0), ("2.15.0", 0)])
def test_kernels_without_a_launch_or_a_reason_become_fewer(release: str, most: int) -> None:
    """Each kernel of the wheel is run by an operator, or has a reason of its own, but for so many."""
    (counts,) = (document["kernels"] for document in load(DOCS / "fidelity") if document["torch"] == release)
    assert sum(counts[name] for name in UNEXPLAINED & counts.keys()) <= most


def test_the_table_of_what_is_left_out() -> None:
    """How many kernels of each family, and the reason."""
    lines = table(count(["exp_dense_float_float", "assert_async_int", "assert_async_float"], (2, 13)))
    assert lines[0] == "1 of 3 kernels belong to operators that were compared, in at least one layout. The others:"
    assert lines[-1] == "| assertions | 2 | They compute nothing. |"
    counts = {document["torch"]: sum(document["kernels"].values()) for document in load(DOCS / "fidelity")}
    assert counts == {"2.13.0": 12998, "2.15.0": 18563}
