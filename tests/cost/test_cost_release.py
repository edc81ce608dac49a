"""What a release of torch runs as another does not: group norms, attention, reductions, layouts of convolutions."""

from __future__ import annotations

import pytest

from anymps import parse_mac
from anymps.cost import Happening, OperatorCall, predict_operator, walk_step
from anymps.cost._predict import graphs_of, works_of
from anymps.cost._tensors import read_tensor
from anymps.rules import parse_torch_version

NORM = OperatorCall.parse(
    "aten::native_group_norm(float32[128, 64, 32, 32]) -> (float32[128, 64, 32, 32], float32[128, 8], float32[128, 8])"
)
BACK = OperatorCall.parse(
    "aten::native_group_norm_backward(float32[128, 64, 32, 32], float32[128, 64, 32, 32], float32[128, 8], "
    "float32[128, 8], float32[64]) -> (float32[128, 64, 32, 32], float32[64], float32[64])"
)
WHOLE = 4 * 128 * 64 * 32 * 32


def attention(width: int, rows: int = 2048, dtype: str = "bfloat16", number: int = 32) -> OperatorCall:
    """Attention of so many heads."""
    query, key = f"{dtype}[1, {number}, {rows}, {width}]", f"{dtype}[1, {number}, 2048, {width}]"
    name = "_scaled_dot_product_attention_math_for_mps"
    return OperatorCall(f"aten::{name}", (query, key, key), (query, f"{dtype}[1, {number}, {rows}, 2048]"))


def milliseconds(call: OperatorCall, mac: str, torch: str) -> float:
    return 1e3 * predict_operator(call, parse_mac(mac), torch).device


def test_python_runs_a_group_norm_until_a_kernel_does() -> None:
    """Until 2.12 its values are read and written several times, by a row of dispatches."""
    newer, older = works_of(NORM), works_of(NORM, (2, 12))
    assert len(newer) == 1
    assert len(older) == graphs_of(NORM) == 9
    assert sum(work.size for work in older) > 2 * sum(work.size for work in newer)
    assert len(works_of(BACK, (2, 12))) == graphs_of(BACK) == 28
    assert sum(work.size for work in works_of(BACK, (2, 12))) > 12 * WHOLE
    times = [predict_operator(NORM, parse_mac("M1 16GB"), torch).host for torch in ("2.12", "2.13")]
    assert times[0] > 8 * times[1]


def test_a_graph_reads_the_scores_again_since_it_looks_for_empty_rows() -> None:
    """Public timings of an M5 Pro with torch 2.12: 24.6 ms for 2048 rows of 32 heads, 101.4 ms for 4096."""
    older, checked = works_of(attention(100), (2, 8)), works_of(attention(100), (2, 9))
    assert [work.kind for work in checked] == [older[0].kind, *["elementwise"] * 3, *[work.kind for work in older[1:]]]
    assert 24.56 / 1.4 < milliseconds(attention(128), "M5 Pro 24GB", "2.12") < 24.56 * 1.4


def test_a_kernel_keeps_the_scores_for_common_widths() -> None:
    """Two products of float32 and no scores; another width or a few queries go the older way."""
    kept = works_of(attention(128), (2, 13))
    assert [(work.kind, work.dtype) for work in kept] == [("bmm", "float32")] * 2
    assert sum(work.size for work in kept) == 4 * 2 * 32 * 2048 * 128
    assert len(works_of(attention(100), (2, 13))) == 6
    assert works_of(attention(128, rows=1), (2, 13)) == works_of(attention(128, rows=1), (2, 8))
    older, newer = (milliseconds(attention(128), "M5 Pro 24GB", torch) for torch in ("2.12", "2.13"))
    assert newer < 0.7 * older


@pytest.mark.parametrize("number", [(2, 8), (2, 12), (2, 15)])
def test_attention_counts_the_same_products_everywhere(number: tuple[int, int]) -> None:
    """What differs is what moves."""
    operations = sum(work.operations for work in works_of(attention(64), number) if work.kind == "bmm")
    assert operations == 2 * 2 * 32 * 2048 * 2048 * 64


def convolution(given: int, words: str) -> Happening:
    """Of pictures with so many channels."""
    text = f"float32[32, {given}, 64, 64], float32[64, {given}, 3, 3]) -> (float32[32, 64, 64, 64])"
    return Happening("kernel", OperatorCall.parse(f"aten::convolution({text}{words}"))


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("aten::linalg_vector_norm(float32[4096, 4096]) -> (float32[])", ("2.12", "2.13", "2.14")),
        ("aten::linalg_vector_norm(float32[64, 4096]) -> (float32[64]) {axis=1}", ("2.12",)),
        ("aten::linalg_vector_norm(float32[64, 4096]) -> (float32[4096]) {axis=0}", ("2.12", "2.13", "2.14")),
        ("aten::amax(float32[8, 256, 30522]) -> (float32[8, 30522]) {axis=1}", ("2.13",)),
        ("aten::max.dim(float32[8, 256, 512]) -> (float32[8, 512], int64[8, 512]) {axis=1}", ("2.13",)),
        ("aten::sum.dim_IntList(float32[32, 64, 56, 56]) -> (float32[64])", ("2.13",)),
        ("aten::sum(float32[4096, 4096]) -> (float32[])", ()),
        ("aten::sum.dim_IntList(float32[64, 4096]) -> (float32[64]) {axis=1}", ()),
        ("aten::sum.dim_IntList(float32[64, 4096]) -> (float32[4096]) {axis=0}", ()),
        ("aten::maximum(float32[64, 64], float32[64, 64]) -> (float32[64, 64])", ()),
        ("aten::max.other(float32[64, 64], float32[64, 64]) -> (float32[64, 64])", ()),
        ("aten::prod.dim_int(float32[8, 256, 512]) -> (float32[8, 512]) {axis=1}", ()),
    ],
)
def test_a_threadgroup_for_each_result(text: str, grouped: tuple[str, ...]) -> None:
    """Norms of 2.12 to 2.14, and sums and extremes of 2.13 over a middle axis or several."""
    call, releases = OperatorCall.parse(text), ("2.11", "2.12", "2.13", "2.14", "2.15")
    found = [work for release in releases for work in works_of(call, parse_torch_version(release).release)]
    assert tuple(release for release, work in zip(releases, found, strict=True) if work.groups) == grouped
    assert {work.groups for work in found} <= {0, max(1, works_results(call))}


def works_results(call: OperatorCall) -> int:
    return read_tensor(call.outputs[0]).elements


def test_one_threadgroup_runs_on_one_core() -> None:
    """A norm takes as long on 40 cores as on 10, about 1.9 ns a number; many results are shared among the cores."""
    norm = OperatorCall.parse("aten::linalg_vector_norm(float32[4096, 4096]) -> (float32[])")
    for mac in ("M4 16GB", "M4 Max 64GB"):
        assert milliseconds(norm, mac, "2.14") == pytest.approx(1.9e-6 * 4096**2, rel=0.1)
    assert milliseconds(norm, "M4 Max 64GB", "2.15") < 0.2
    largest = OperatorCall.parse("aten::amax(float32[1, 256, 30522]) -> (float32[1, 30522]) {axis=1}")
    small, large = (milliseconds(largest, mac, "2.13") for mac in ("M4 16GB", "M4 Max 64GB"))
    assert 1.1 < small < 1.7  # public trainings lack 1.1 to 1.5 ms for each sample
    assert 3 < small / large < 5


def test_channels_last_ends_at_the_first_convolution_of_older_releases() -> None:
    """Before 2.5 what a convolution makes is contiguous, though the recording's torch kept the layout."""
    mac = parse_mac("M1 16GB")

    def seconds(torch: str, first: str, others: str) -> float:
        step = [convolution(3, first), *[convolution(64, others) for _ in range(4)]]
        return walk_step(step, mac, torch).device

    assert seconds("2.4", " {transposed}", " {transposed}") == pytest.approx(seconds("2.4", " {transposed}", ""))
    assert seconds("2.4", " {transposed}", "") > seconds("2.4", "", "")
    assert seconds("2.5", " {transposed}", " {transposed}") > 1.05 * seconds("2.5", " {transposed}", "")
