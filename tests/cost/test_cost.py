"""Predicted times: hand-made calls with known answers, and refusals."""

from __future__ import annotations

import re

import pytest

from anymps import CostError, Mac, parse_mac
from anymps.cost import OperatorCall, OperatorTime, predict_operator
from anymps.cost._coefficients import shipped, torch_release
from anymps.cost._predict import runs_own_kernel, wait_seconds, works_of
from anymps.mac import all_macs
from cost.calls import COEFFICIENTS, M1, ROOT, TORCH, call, product

M4_MAX = parse_mac("M4 Max 40-core GPU 64GB")


def time_of(text: str, mac: Mac = M1, torch: str = TORCH) -> OperatorTime:
    """The predicted time of a call."""
    return predict_operator(call(text), mac, torch)


def test_a_large_product_is_bound_by_compute() -> None:
    """4096 cubed at 55 to 90 % of the peak rate; public timing on an M4 Max: 10.3 ms with a wait."""
    time = predict_operator(product(4096), M4_MAX, TORCH)
    assert (time.bound, time.kind) == ("compute", "gemm")
    assert M4_MAX.fp32_peak is not None
    assert 0.55 < 2 * 4096**3 / time.device / M4_MAX.fp32_peak < 0.9
    assert time.low < time.device < time.high
    assert time.low < 0.0101 < time.high


def test_a_large_sum_of_two_tensors_is_bound_by_bandwidth() -> None:
    """Three tensors of 256 MiB pass the memory at 40 % to all of its rate."""
    time = time_of("aten::add.Tensor(float32[8192, 8192], float32[8192, 8192]) -> (float32[8192, 8192])")
    assert (time.bound, time.kind) == ("bandwidth", "elementwise")
    assert 0.4 < 3 * 4 * 8192**2 / time.device / M1.memory_bandwidth < 1.0001


def test_a_tiny_operator_is_bound_by_its_launch() -> None:
    """One element: the kernel takes some microseconds, and the host longer to dispatch it."""
    time = time_of("aten::relu(float32[1]) -> (float32[1])")
    assert time.bound == "launch"
    assert 0.5e-6 < time.device < 5e-6 < time.host < 30e-6


def test_a_view_costs_nothing_on_the_device() -> None:
    """Only the host has work with it."""
    time = time_of("aten::view(float32[64, 64]) -> (float32[4096])")
    assert (time.device, time.low, time.high, time.bound) == (0, 0, 0, "nothing")
    assert 0 < time.host < 10e-6


def test_a_fused_kernel_moves_its_buffers_once() -> None:
    """As an elementwise operator with the same tensors; a person's own Metal kernel may do anything."""
    buffers = "float32[4096, 4096], float32[4096, 4096]"
    fused = time_of(f"metal::generated_kernel_0.threads_16777216_group_1024({buffers}) -> ()")
    assert fused == time_of("aten::relu(float32[4096, 4096]) -> (float32[4096, 4096])")
    with pytest.raises(CostError) as raised:
        time_of(f"metal::mine.threads_8_group_8({buffers}) -> ()")
    assert str(raised.value) == "anymps: metal::mine.threads_8_group_8 has no class of cost: its time is not predicted"


def test_in_place_counts_what_is_written() -> None:
    """`relu_` moves as many bytes as `relu`, and `zero_` half of them."""
    there = time_of("aten::relu(float32[4096, 4096]) -> (float32[4096, 4096])")
    in_place = time_of("aten::relu_(float32[4096, 4096]) -> ()")
    assert there == in_place
    assert time_of("aten::zero_(float32[4096, 4096]) -> ()").device < there.device


def moved(text: str) -> list[tuple[str, int]]:
    """The kernels of a call and the bytes that each moves."""
    return [(work.kind, work.size) for work in works_of(call(text))]


def test_a_scatter_moves_what_its_index_holds() -> None:
    """One column of sixteen: index, values and places; a table that is not worked on in place is copied."""
    copied = ("copy", 2 * 4 * 64 * 16)
    kept, rows = "float32[64, 16], int64[1000, 1], float32[1000, 16]", "int64[1000], float32[1000, 16]"
    assert moved(f"aten::scatter_reduce.two({kept}) -> (float32[64, 16])") == [copied, ("scatter_reduce", 16 * 1000)]
    assert moved(f"aten::scatter_add_({kept}) -> ()") == [("scatter_reduce", 16 * 1000)]
    assert moved(f"aten::scatter_.src({kept}) -> ()") == [("scatter", 16 * 1000)]
    assert moved("aten::scatter_.value(float32[64, 16], int64[1000, 1]) -> ()") == [("scatter", 12 * 1000)]
    whole = 8 * 1000 + 2 * 4 * 1000 * 16
    assert moved(f"aten::index_add_(float32[64, 16], {rows}) -> ()") == [("scatter_reduce", whole)]
    assert moved(f"aten::index_put_(float32[64, 16], {rows}) -> ()") == [("scatter", whole)]
    assert moved(f"aten::index_copy(float32[64, 16], {rows}) -> (float32[64, 16])") == [copied, ("scatter", whole)]


def conflicts(text: str) -> int:
    """How often a scatter adds to a cache line."""
    return max(work.conflicts for work in works_of(call(text)))


def test_additions_to_one_cache_line_are_counted() -> None:
    """All places alike: whole rows on the lines of the table, one column on a line for each row that has one."""
    rows = "int64[1000000], float32[1000000, 64]"
    assert conflicts(f"aten::index_add_(float32[10, 64], {rows}) -> ()") == 64 * 1_000_000 // 20
    column = "int64[1000000, 1], float32[1000000, 64]"
    assert conflicts(f"aten::scatter_add_(float32[10, 64], {column}) -> () {{axis=0}}") == 100_000
    narrow = "int64[1000000, 1], float32[1000000, 16]"
    assert conflicts(f"aten::scatter_add_(float32[64, 16], {narrow}) -> ()") == 1_000_000 // 32
    for other in (f"aten::index_put_(float32[10, 64], {rows})", f"aten::index_copy_(float32[10, 64], {rows})"):
        assert conflicts(f"{other} -> ()") == 0


def test_additions_to_one_cache_line_wait_for_each_other() -> None:
    """By MPSGraph on M1 and M2; 1e6 rows onto ten places take 18.8 s on an M1 Pro, onto many as long as the memory."""
    few, many = (
        call(f"aten::scatter_add_(float32[{places}, 64], int64[1000000, 64], float32[1000000, 64]) -> ()")
        for places in (10, 100_000)
    )
    pro = parse_mac("M1 Pro 16-core GPU 32GB")
    graph, own = (predict_operator(few, pro, torch) for torch in ("2.1", "2.13"))
    assert (graph.bound, graph.device) == ("compute", pytest.approx(18.77, rel=0.25))
    assert own.device < 0.1
    assert predict_operator(few, parse_mac("M4 Pro 24GB"), "2.6").device < 0.1
    assert predict_operator(many, pro, "2.1").device < 0.2
    gradient = call("aten::embedding_dense_backward(float32[16, 128, 128], int64[16, 128]) -> (float32[2, 128])")
    assert predict_operator(gradient, pro, "2.4").device < 2e-3


def test_a_scatter_of_one_value_writes_its_places() -> None:
    """A value alone is read once; rows that are filled are whole ones; a mask takes no more than its source has."""
    one = "aten::index_put_(float32[64, 16], int64[10], float32[]) -> ()"
    assert moved(one) == [("scatter", 8 * 10 + 4 + 4 * 10)]
    filled = "aten::index_fill_.int_Scalar(float32[64, 16], int64[10]) -> () {axis=1}"
    assert moved(filled) == [("scatter", 8 * 10 + 4 * 10 * 64)]
    masked = "aten::masked_scatter_(float32[64, 16], bool[64, 16], float32[100]) -> ()"
    assert moved(masked) == [("scatter", 64 * 16 + 2 * 4 * 100)]


def test_the_gradient_of_an_embedding_fills_its_table() -> None:
    """The table is filled; of it, the rows of the tokens are added to."""
    text = "aten::embedding_dense_backward(float32[2, 128, 768], int64[2, 128]) -> (float32[30000, 768])"
    rows = 2 * 128 * 768 * 4
    assert moved(text) == [("fill", 4 * 30000 * 768), ("scatter_reduce", 2 * rows + 8 * 2 * 128)]


def test_a_copy_across_rows_reads_a_sector_for_each_number() -> None:
    """Beyond the cache: 512 channels with their axes reversed take 1.7 ms on an M5 Pro. Half types gain little."""
    weights = "aten::copy_(float32[3, 3, 3, {0}, {0}], float32[3, 3, 3, {0}, {0}]) -> () {1}"
    pro = parse_mac("M5 Pro 16-core GPU 24GB")
    plain, across = (predict_operator(call(weights.format(512, word)), pro, "2.14") for word in ("", "{strided}"))
    assert (plain.kind, across.kind) == ("copy", "strided_copy")
    assert across.device == pytest.approx(1.7e-3, rel=0.25)
    assert 4 < across.device / plain.device < 10
    cached = predict_operator(call(weights.format(256, "{strided}")), pro, "2.14")
    assert cached.device < across.device / 6
    half = "aten::copy_(float16[8192, 8192], float16[8192, 8192]) -> () {strided}"
    assert time_of(half).device > 0.9 * time_of(half.replace("float16", "float32")).device


def test_a_depthwise_convolution_is_a_product_for_each_channel() -> None:
    """128 groups of one channel, 3 x 3: the gradients of its input and of its weights, and no sum without a bias."""
    backward = call(
        "aten::convolution_backward(float32[8, 128, 56, 56], float32[8, 128, 56, 56], float32[128, 1, 3, 3]) -> "
        "(float32[8, 128, 56, 56], float32[128, 1, 3, 3])"
    )
    assert [(counted.kind, counted.batch, counted.operations) for counted in works_of(backward)] == [
        ("conv_input", 128, 2 * 8 * 56 * 56 * 128 * 9),
        ("conv_weight", 128, 2 * 8 * 56 * 56 * 128 * 9),
    ]


def test_a_convolution_counts_as_a_product() -> None:
    """128 channels, 3 x 3: 2 * 8*56*56 * 128 * 128*9 operations; backward makes two such products and a sum."""
    given, weight = "float32[8, 128, 56, 56]", "float32[128, 128, 3, 3]"
    forward = time_of(f"aten::convolution({given}, {weight}) -> ({given})", M4_MAX)
    results = f"{given}, {weight}, float32[128]"
    backward = time_of(f"aten::convolution_backward({given}, {given}, {weight}) -> ({results})", M4_MAX)
    assert forward.kind == "conv"
    assert M4_MAX.fp32_peak is not None
    assert 0.4 < 2 * 8 * 56 * 56 * 128 * 128 * 9 / forward.device / M4_MAX.fp32_peak < 1
    assert 1.8 < backward.device / forward.device < 6


def test_a_linear_layer_counts_as_its_product() -> None:
    """`linear` of 3-D input is one product; its backward makes two and sums the bias."""
    given, made, weight = "float32[8, 512, 768]", "float32[8, 512, 3072]", "float32[3072, 768]"
    forward = time_of(f"aten::linear({given}, {weight}, float32[3072]) -> ({made})")
    same = time_of("aten::mm(float32[4096, 768], float32[768, 3072]) -> (float32[4096, 3072])")
    backward = time_of(f"aten::linear_backward({given}, {made}, {weight}) -> ({given}, {weight}, float32[3072])")
    assert forward.device == pytest.approx(same.device, rel=0.01)
    assert 1.9 < backward.device / forward.device < 2.6


@pytest.mark.parametrize("rows", [1, 16])
def test_a_product_of_few_rows_takes_the_time_of_reading_the_matrix(rows: int) -> None:
    """14.48 GB of weights pass an M5's memory in 129 ms for each token of Mistral-7B: at 73 % of its bandwidth."""
    mac = parse_mac("M5 24GB")
    text = f"aten::linear(float16[1, {rows}, 4096], float16[14336, 4096]) -> (float16[1, {rows}, 14336])"
    time = time_of(text, mac, "2.8")
    assert (time.kind, time.bound) == ("few_rows", "bandwidth")
    assert 0.65 < 2 * 4096 * 14336 / time.device / mac.memory_bandwidth < 0.8
    larger = call(text.replace(f"{rows}, 4096", "17, 4096").replace(f"{rows}, 14336", "17, 14336"))
    assert [work.kind for work in works_of(larger)] == ["gemm"]


def test_a_linear_layer_of_one_number_has_a_vector_for_a_weight() -> None:
    """Each row by the vector: a product with one column."""
    (work,) = works_of(call("aten::linear(float32[8, 512, 768], float32[768]) -> (float32[8, 512])"))
    assert (work.kind, work.m, work.n, work.k) == ("gemm", 4096, 1, 768)


def test_where_the_axis_lies_is_read_from_the_shapes() -> None:
    """Sums over the last axis, one between, the first one and all."""
    made = {
        "float32[64, 32]": "reduce_inner",
        "float32[64, 128]": "reduce_outer",
        "float32[64, 1, 128]": "reduce_outer",
        "float32[32, 128]": "reduce_first",
        "float32[]": "reduce_all",
    }
    for text, kind in made.items():
        one = OperatorCall("aten::sum.dim_IntList", ("float32[64, 32, 128]",), (text,))
        assert predict_operator(one, M1, TORCH).kind == kind


def test_a_copy_from_the_cpu_is_time_of_the_host() -> None:
    """The queue of the device does nothing meanwhile; what goes beyond a mebibyte passes at 7 GB a second."""
    time = time_of("aten::copy_(float32[250000] on cpu, float32[250000]) -> ()")
    assert (time.kind, time.device) == ("transfer", 0)
    assert time.host == pytest.approx(20e-6 + 1e6 / 50e9)
    large = time_of("aten::copy_(float32[2500000] on cpu, float32[2500000]) -> ()")
    assert 5e9 < 1e7 / large.host < 8e9


@pytest.mark.parametrize(("inner", "low", "high"), [(128, 1.0, 1.8), (384, 1.5, 2.6), (4096, 3.2, 4.8)])
def test_half_types_gain_on_an_m5_by_the_depth_of_their_sums(inner: int, low: float, high: float) -> None:
    """Its neural accelerators need long sums: DeiT-S, 384 wide, gains 1.8 by float16, large products four times."""
    products = [
        call(f"aten::mm({dtype}[8192, {inner}], {dtype}[{inner}, 8192]) -> ({dtype}[8192, 8192])")
        for dtype in ("float32", "float16")
    ]
    single, half = (predict_operator(one, parse_mac("M5 24GB"), "2.13").device for one in products)
    assert low < single / half < high


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_larger_mac_is_not_slower(dtype: str) -> None:
    """With more cores and bandwidth of the same generation a large product, and a large sum, take no longer."""
    wide = call(f"aten::add.Tensor({dtype}[8192, 8192], {dtype}[8192, 8192]) -> ({dtype}[8192, 8192])")
    macs = [mac for mac in all_macs() if mac.fp32_peak is not None]
    for small in macs:
        for large in macs:
            if small.generation == large.generation and _is_larger(large, small):
                for one in (product(4096, dtype), wide):
                    slower = predict_operator(one, small, TORCH).device
                    assert predict_operator(one, large, TORCH).device <= slower * 1.0001


def _is_larger(large: Mac, small: Mac) -> bool:
    assert large.fp32_peak is not None and small.fp32_peak is not None
    return large.fp32_peak >= small.fp32_peak and large.memory_bandwidth >= small.memory_bandwidth


def test_more_work_takes_longer() -> None:
    """Time grows with the size."""
    times = [predict_operator(product(n), M1, TORCH).device for n in (64, 256, 1024, 4096)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("text", "mac", "torch", "message"),
    [
        (
            "aten::linalg_svd(float32[4, 4]) -> (float32[4, 4])",
            "M1 16GB",
            "2.13",
            "anymps: aten::linalg_svd has no class of cost: its time is not predicted",
        ),
        (
            "aten::mm(int64[4, 4], int64[4, 4]) -> (int64[4, 4])",
            "M1 16GB",
            "2.13",
            "anymps: no public timing of a product of int64 matrices on mps is known",
        ),
        (
            "aten::relu(float32[4]) -> (float32[4])",
            "MacBook Neo",
            "2.13",
            "anymps: no time can be predicted for Apple A18 Pro: its GPU clock is not public",
        ),
        (
            "aten::relu(float32[4]) -> (float32[4])",
            "M1 16GB",
            "1.12",
            "anymps: no times are predicted for torch 1.12: the data begin with torch 1.13",
        ),
        (
            "aten::relu(float32[4]) -> (float32[4])",
            "M1 16GB",
            "newest",
            "anymps: not a release of torch: 'newest'",
        ),
        (
            "aten::relu(float32[4] on cpu) -> (float32[4] on cpu)",
            "M1 16GB",
            "2.13",
            "anymps: aten::relu takes a tensor on the CPU: its time on mps is not predicted",
        ),
    ],
)
def test_what_is_not_known_is_told(text: str, mac: str, torch: str, message: str) -> None:
    """No number without a ground: one line says what is missing."""
    with pytest.raises(CostError) as caught:
        time_of(text, parse_mac(mac), torch)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ("float32[...]", "anymps: not a tensor: 'float32[...]': its sizes were not recorded"),
        ("float99[3]", "anymps: not a dtype of a tensor: 'float99'"),
        ("[3, 4]", "anymps: not a tensor: '[3, 4]'"),
        ("float32[-3]", "anymps: not a tensor: 'float32[-3]'"),
    ],
)
def test_nonsense_is_refused(tensor: str, message: str) -> None:
    """A text that is no tensor ends in one line."""
    with pytest.raises(CostError) as caught:
        predict_operator(OperatorCall("aten::relu", (tensor,), (tensor,)), M1, TORCH)
    assert str(caught.value) == message


def test_results_that_were_not_recorded_are_missed() -> None:
    """Without its result the bytes of a call are not known; what works in place, or is given the result, has none."""
    with pytest.raises(CostError) as caught:
        time_of("aten::relu(float32[64]) -> ()")
    assert str(caught.value) == "anymps: the results of aten::relu were not recorded: its time is not predicted"
    given = call("aten::mm.out(float32[512, 256], float32[256, 128], float32[512, 128]) -> ()")
    made = call("aten::mm(float32[512, 256], float32[256, 128]) -> (float32[512, 128])")
    assert predict_operator(given, M1, TORCH) == predict_operator(made, M1, TORCH)


def test_any_tensors_give_a_time_or_one_line() -> None:
    """Every operator with a class, with tensors that it may never have seen: no other error, no negative time."""
    source = (ROOT / "src" / "anymps" / "cost" / "_classes.py").read_text(encoding="utf-8")
    matrices = (ROOT / "src" / "anymps" / "cost" / "_matrix.py").read_text(encoding="utf-8")
    names = sorted({*re.findall(r"[a-z_][a-z0-9_]{2,}", source), *re.findall(r'"(\w+)": _', matrices)})
    tensors = ["float32[]", "float32[0, 4]", "int64[3]", "bool[2, 3, 4]", "float16[1, 1, 1, 1]", "float32[5, 0, 2]"]
    refused = []
    for name in names:
        for i, first in enumerate(tensors):
            for inputs, outputs in (((), (first,)), ((first,), (first,)), ((first, tensors[i - 1], first), (first,))):
                try:
                    time = predict_operator(OperatorCall(f"aten::{name}", inputs, outputs), M1, TORCH)
                except CostError as error:
                    refused.append(str(error))
                else:
                    assert 0 <= time.low <= time.device <= time.high < 1
    assert all(re.fullmatch("anymps: .+", line) for line in refused)


def test_a_plain_convolution_takes_no_longer_on_an_older_torch() -> None:
    """Those that were timed had permuted inputs: what these took longer is theirs alone."""
    shapes = "(float32[32, 64, 56, 56], float32[64, 64, 3, 3]) -> (float32[32, 64, 56, 56])"
    plain, permuted = call(f"aten::convolution{shapes}"), call(f"aten::convolution{shapes} {{transposed}}")
    old, new = (predict_operator(plain, M1, torch).device for torch in ("2.2", "2.13"))
    assert old == pytest.approx(new, rel=0.02)
    assert predict_operator(permuted, M1, "2.2").device > 2 * old


def test_a_kernel_of_its_own_is_dispatched_in_less_time_than_a_graph() -> None:
    """By release: `gelu` was a graph in torch 2.12, and `tanh` in 2.6; half of a training step's calls changed so."""
    times = {
        (name, torch): time_of(f"aten::{name}(float32[64]) -> (float32[64])", M1, torch).host
        for name, torch in (("gelu", "2.12"), ("gelu", "2.13"), ("tanh", "2.6"), ("tanh", "2.15"), ("sign", "2.15"))
    }
    graph, own = COEFFICIENTS["microseconds"]["host"], COEFFICIENTS["common"]["kernel_host"]
    assert {key: 1e6 * host for key, host in times.items()} == pytest.approx(
        {
            ("gelu", "2.12"): graph["2.10"],
            ("gelu", "2.13"): own,
            ("tanh", "2.6"): graph["2.5"],
            ("tanh", "2.15"): own,
            ("sign", "2.15"): graph["2.10"],
        }
    )
    assert own < 0.5 * graph["2.10"]
    written = OperatorCall("metal::add_one", ("float32[64]",))
    assert runs_own_kernel(written, torch_release("2.5"))


def test_some_calls_take_the_host_as_long_as_several() -> None:
    """Gradients of input and weight are a graph each, that of the bias is in the weight's; long graphs count twice."""
    given = "float32[32, 64], float32[32, 10], float32[10, 64]"
    both, one = "(float32[32, 64], float32[10, 64], float32[10])", "(float32[10, 64], float32[10])"
    shapes = "float32[8, 32, 9, 9], float32[8, 16, 9, 9], float32[32, 16, 3, 3]"
    convolution = f"aten::convolution_backward({shapes}) -> (float32[8, 16, 9, 9], float32[32, 16, 3, 3], float32[32])"
    norm = "aten::native_batch_norm(float32[8, 32, 9, 9], float32[32]) -> (float32[8, 32, 9, 9], float32[32])"
    texts = [f"aten::linear_backward({given}) -> {both}", f"aten::linear_backward({given}) -> {one}", convolution, norm]
    hosts = [1e6 * time_of(text).host for text in texts]
    graph = COEFFICIENTS["microseconds"]["host"]["2.10"]
    assert hosts == pytest.approx([2 * graph, graph, 4 * graph, 2 * graph])


def test_pytorchs_own_kernel_takes_less_than_a_graph_on_any_gpu() -> None:
    """Softmax has one since torch 2.15; what MPSGraph took longer on an M1 goes with it. A sum of two is as it was."""
    softmax = call("aten::_softmax(float32[4096, 4096]) -> (float32[4096, 4096]) {axis=-1}")
    graph, own = (predict_operator(softmax, M1, torch).device for torch in ("2.14", "2.15"))
    assert own < 0.6 * graph
    share = 2 * 4096 * 4096 * 4 / M1.memory_bandwidth / own
    assert share > 0.6
    add = call("aten::add.Tensor(float32[4096, 4096], float32[4096, 4096]) -> (float32[4096, 4096])")
    assert len({predict_operator(add, M1, torch).device for torch in ("2.10", "2.13", "2.15")}) == 1


def test_indexing_became_faster_with_the_release_that_rewrote_it() -> None:
    """Its kernel was PyTorch's own before: torch 2.8 has a faster one."""
    rows = call("aten::index.Tensor(float32[100000, 64], int64[1000000]) -> (float32[1000000, 64])")
    before, after = (predict_operator(rows, M4_MAX, torch).device for torch in ("2.7", "2.8"))
    assert after < 0.7 * before


def test_sorting_along_another_axis_has_a_class_of_its_own() -> None:
    """Neighbours of a column lie a row apart."""
    texts = ("float32[4096, 4096]", "float32[4096, 4096]", "int64[4096, 4096]")
    inner, outer = (
        predict_operator(OperatorCall("aten::sort", texts[:1], texts[1:], axis=axis), M4_MAX, "2.12") for axis in (1, 0)
    )
    assert (inner.kind, outer.kind) == ("sort", "sort_outer")
    assert outer.device > 1.5 * inner.device


def test_a_median_of_mpsgraph_takes_a_hundred_times_as_long_as_a_sort() -> None:
    """Kornia's median filter on an M4 with torch 2.9: 2.74 s for 24 pictures; from torch 2.14 on the kernel sorts."""
    filtered = call(
        "aten::median.dim_values(float32[8, 3, 25, 256, 256], float32[8, 3, 256, 256], int64[8, 3, 256, 256]) -> ()"
    )
    graph, own = (predict_operator(filtered, parse_mac("M4 32GB"), torch) for torch in ("2.9", "2.14"))
    assert (graph.kind, own.kind) == ("median", "median")
    assert 2.0 < graph.device < 4.0
    assert own.device < 0.05 * graph.device


@pytest.mark.parametrize(
    "text",
    [
        "aten::add_.Tensor(float32[4], float32[4]) -> ()",
        "aten::sum.dim_IntList(float32[4, 3]) -> (float32[3]) {axis=0}",
        "aten::copy_(float32[4, 3], float32[4, 3]) -> () {transposed blit strided}",
        "aten::sort(float32[4]) -> (float32[4], int64[4]) {axis=-1 transposed}",
    ],
    ids=["in place", "axis", "properties", "both"],
)
def test_a_call_is_written_as_it_is_read(text: str) -> None:
    """As the files of timings have it."""
    assert call(text).text == text
    with pytest.raises(CostError, match=re.escape("anymps: not a call of an operator: 'relu 4'")):
        call("relu 4")


def test_forms_that_write_numbers_and_their_places_have_both_as_results() -> None:
    """`median.dim_values` and its like are given two tensors to write to, and take as long as the form without."""
    plain = call("aten::sort.stable(float32[64, 1000]) -> (float32[64, 1000], int64[64, 1000]) {axis=1}")
    given = call("aten::sort.values_stable(float32[64, 1000], float32[64, 1000], int64[64, 1000]) -> () {axis=1}")
    assert (plain.outs, given.outs, call("aten::mm.out() -> ()").outs) == (0, 2, 1)
    assert predict_operator(given, M1, TORCH) == predict_operator(plain, M1, TORCH)


def test_a_depthwise_convolution_is_as_quick_as_its_memory() -> None:
    """5 x 5 over 32 pictures takes 1 to 2 ms on an M4 (Kornia's box filter); 8 filters a channel are a product."""
    shapes = "float32[32, 3, 260, 260], float32[{}, 1, 5, 5]) -> (float32[32, {}, 256, 256])"
    found = [
        time_of(f"aten::convolution({shapes.format(filters, filters)}", parse_mac("M4 32GB")) for filters in (3, 24)
    ]
    assert [time.kind for time in found] == ["conv_depthwise", "conv"]
    assert 0.7e-3 < found[0].device < 2e-3


def test_a_wait_is_quicker_from_m4_on() -> None:
    """The same script waits 0.38 ms for an M1 and 0.13 ms for an M4."""
    older, newer = (wait_seconds(parse_mac(mac), shipped()) for mac in ("M1 16GB", "M4 32GB"))
    assert newer == pytest.approx(shipped().wait_newer_chip * older)
    assert 0.4 < shipped().wait_newer_chip < 0.7
