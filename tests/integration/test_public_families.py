"""Kernels of MLX, ggml, Hugging Face and mistral.rs: compiled as they stand, run, and held to torch."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from public_kernels import (
    both_forms,
    empty,
    instances_alone,
    joined,
    library,
    on_mps,
    root_of,
    with_constants,
    words,
)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("virtual_device")]

MLX = "ml-explore/mlx"
IN_MLX = "mlx/backend/metal/kernels"
GGML = ("cpy_f32_q8_0", "cpy_q8_0_f32", "cpy_f32_q4_0", "cpy_q4_0_f32", "get_rows_q8_0", "get_rows_f16")
GATES = ("swiglu_f32", "geglu_erf_f32", "reglu_f16", "repeat_i32", "tri_f32_0", "concat_f32")
HF = "huggingface/kernels-community"
MISTRAL = "EricLBuehler/mistral.rs"


def mlx(*files: str, instances: str, constants: dict[str, str] | None = None) -> Any:
    """Headers of MLX with these instances behind, as its own just-in-time compiler writes them."""
    text = joined(root_of(MLX), [f"{IN_MLX}/{file}" for file in ("defines.h", "utils.h", *files)])
    lines = "".join(f"\ninstantiate_kernel({line.strip()})" for line in instances.strip().splitlines())
    return both_forms(with_constants(text, constants or {}) + lines + "\n")


def whole(values: list[int]) -> torch.Tensor:
    """64-bit integers on the device."""
    return torch.tensor(values, dtype=torch.int64, device="mps")


UNARY = {
    "Abs": torch.abs,
    "ArcTan": torch.atan,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Floor": torch.floor,
    "Log1p": lambda x: torch.log1p(x.abs()),
    "Negative": torch.neg,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Square": torch.square,
    "Tanh": torch.tanh,
}


def test_mlx_functions_of_one_number() -> None:
    """unary.h: sixteen of them in float and in bfloat, four elements a thread at most, and through strides."""
    lines = [f'"{op}_{t}", unary_v, {t}, {t}, {op}' for op in UNARY for t in ("float", "bfloat16_t")]
    kernels = mlx(
        "unary_ops.h", "unary.h", instances="\n".join([*lines, '"Exp_g", unary_g, float, float, Exp, 1, int'])
    )
    x = torch.randn(101) * 2
    for op, function in UNARY.items():
        given = x.abs() if op == "Log1p" else x
        for t, dtype, close in (("float", torch.float32, 1e-5), ("bfloat16_t", torch.bfloat16, 1e-2)):
            out = empty(101, dtype=dtype)
            per = 8 // (4 if dtype == torch.float32 else 2)
            getattr(kernels, f"{op}_{t}")(given.to(dtype).to("mps"), out, 101, threads=-(-101 // per))
            torch.testing.assert_close(out.cpu().float(), function(given.to(dtype).float()), rtol=close, atol=close)
    turned = torch.randn(7, 5).T
    out = empty(5, 7)
    kernels.Exp_g(turned.to("mps"), out, words(5, 7), whole([1, 5]), words(2), threads=(7, 5, 1))
    torch.testing.assert_close(out.cpu(), turned.exp())


def test_mlx_functions_of_two_numbers() -> None:
    """binary.h: vectors, a number with a vector, integers that Python's rules divide, and bits."""
    kernels = mlx(
        "binary_ops.h",
        "binary.h",
        "ternary_ops.h",
        "ternary.h",
        instances="""
"add", binary_vv, float, float, Add
"most", binary_sv, float, float, Maximum
"power", binary_vs, float, float, Power
"logs", binary_vv, float, float, LogAddExp
"half_of", binary_vv, half, half, Multiply
"rest", binary_vv, int32_t, int32_t, Remainder
"less", binary_vv, float, bool, Less
"bits", binary_vv, uint8_t, uint8_t, BitwiseXor
"choose", ternary_v, float, Select, false, false""",
    )
    a, b = torch.randn(99), torch.randn(99)
    am, bm = on_mps(a, b)
    for name, expected in (
        ("add", a + b),
        ("most", torch.maximum(a[:1], b)),
        ("logs", torch.logaddexp(a, b)),
        ("less", a < b),
    ):
        out = empty(99, dtype=expected.dtype)
        getattr(kernels, name)(am, bm, out, 99, threads=50)
        torch.testing.assert_close(out.cpu(), expected)
    out = empty(99)
    kernels.power(a.abs().to("mps"), bm, out, 99, threads=50)
    torch.testing.assert_close(out.cpu(), a.abs() ** b[0], rtol=1e-4, atol=1e-5)
    kernels.choose((a < b).to("mps"), am, bm, out, 99, threads=50)
    assert torch.equal(out.cpu(), torch.minimum(a, b))
    for name, x, y, expected in (
        ("half_of", a.half(), b.half(), a.half() * b.half()),
        ("rest", *(n := (torch.arange(-49, 50).int(), torch.full((99,), 7).int())), n[0] % n[1]),
        ("bits", *(n := (torch.arange(99).to(torch.uint8), torch.full((99,), 85).to(torch.uint8))), n[0] ^ n[1]),
    ):
        out = empty(99, dtype=expected.dtype)
        getattr(kernels, name)(*on_mps(x, y), out, 99, threads=99)
        assert torch.equal(out.cpu(), expected)


def test_mlx_copies_and_ranges() -> None:
    """copy.h and arange.h: casts between types, one value for all, and steps."""
    kernels = mlx(
        "copy.h",
        "arange.h",
        "binary_ops.h",
        "sort.h",
        "searchsorted.h",
        instances="""
"to_half", copy_v, float, half
"to_bfloat", copy_v, float, bfloat16_t
"to_int", copy_v, float, int32_t
"fill", copy_s, float, float
"range", arange, float
"places", searchsorted, float, true""",
    )
    x = torch.randn(77) * 10
    for name, dtype in (("to_half", torch.float16), ("to_bfloat", torch.bfloat16), ("to_int", torch.int32)):
        out = empty(77, dtype=dtype)
        getattr(kernels, name)(x.to("mps"), out, 77, threads=39)
        assert torch.equal(out.cpu(), x.to(dtype))
    out = empty(77)
    kernels.fill(x.to("mps"), out, 77, threads=39)
    assert torch.equal(out.cpu(), x[:1].expand(77))
    kernels.range(2.0, 0.5, out, threads=77)
    assert torch.equal(out.cpu(), 2 + torch.arange(77) * 0.5)
    found = empty(77, dtype=torch.int32)
    grid = torch.linspace(-20, 20, 33)
    kernels.places(*on_mps(grid, x), found, 33, whole([1]), threads=(77, 1, 1))
    assert torch.equal(found.cpu().long(), torch.searchsorted(grid, x, right=True))


def test_mlx_rows() -> None:
    """softmax.h, logsumexp.h and reduction/: a group for each row or for four rows."""
    kernels = mlx(
        "softmax.h",
        "logsumexp.h",
        "atomic.h",
        "reduction/ops.h",
        "reduce.h",
        instances="""
"softmax", softmax_single_row, float
"softmax_half", softmax_single_row, half, float
"lse", logsumexp, float
"sums", row_reduce_simple, float, float, Sum<float>
"tops", row_reduce_simple, float, float, Max<float>
"all_of", all_reduce, float, float, Sum<float>""",
    )
    x = torch.randn(8, 200)
    for name, dtype in (("softmax", torch.float32), ("softmax_half", torch.float16)):
        out = empty(8, 200, dtype=dtype)
        getattr(kernels, name)(x.to(dtype).to("mps"), out, 200, threads=64 * 8, group_size=64)
        torch.testing.assert_close(out.cpu(), x.to(dtype).float().softmax(1).to(dtype), rtol=2e-3, atol=1e-5)
    out = empty(8)
    kernels.lse(x.to("mps"), out, 200, threads=64 * 8, group_size=64)
    torch.testing.assert_close(out.cpu(), x.logsumexp(1))
    for name, expected in (("sums", x.sum(1)), ("tops", x.amax(1))):
        out = empty(8)
        getattr(kernels, name)(x.to("mps"), out, 200, 8, threads=(64, 2, 1), group_size=(64, 1, 1))
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    out = empty(1)
    kernels.all_of(x.to("mps"), out, x.numel(), x.numel(), threads=(96, 1, 1), group_size=(96, 1, 1))
    torch.testing.assert_close(out.cpu()[0], x.sum(), rtol=1e-4, atol=1e-4)


def test_mlx_norms() -> None:
    """rms_norm.metal and layer_norm.metal: kernels beside others that read a function constant."""
    x, w, b = torch.randn(6, 300), torch.randn(300), torch.randn(300)
    xm, wm, bm = on_mps(x, w, b)
    kernels = library(MLX, f"{IN_MLX}/rms_norm.metal")
    out = empty(6, 300)
    kernels.rmsfloat32(xm, wm, out, 1e-5, 300, 1, threads=96 * 6, group_size=96)
    torch.testing.assert_close(out.cpu(), F.rms_norm(x, (300,), w, 1e-5), rtol=1e-4, atol=1e-5)
    kernels = library(MLX, f"{IN_MLX}/layer_norm.metal")
    kernels.layer_normfloat32(xm, wm, bm, out, 1e-5, 300, 1, 1, threads=64 * 6, group_size=64)
    torch.testing.assert_close(out.cpu(), F.layer_norm(x, (300,), w, b, 1e-5), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="'vjp_layer_normfloat32' reads the function constant 'has_w'"):
        _ = kernels.vjp_layer_normfloat32


def test_mlx_rotates_by_position() -> None:
    """rope.metal, with its function constants written into the text."""
    source = joined(root_of(MLX), [f"{IN_MLX}/rope.metal"])
    source = with_constants(source, {"forward": "true", "traditional": "false", "hs_transpose": "false"})
    source = source[: source.index("#define instantiate_rope_g")]
    kernels = both_forms(source + '\ninstantiate_kernel("rope", rope_single, float)\n')
    x, width, offset = torch.randn(4, 32), 32, 5
    out = empty(4, 32)
    base = torch.log2(torch.tensor(10000.0))
    padding = [0] * 5  # buffers 5 to 9, which it has not
    kernels.rope(x.to("mps"), out, words(offset), 1.0, width, *padding, float(base), threads=(16, 4))
    angle = offset * 10000.0 ** (-torch.arange(16) / 16)
    a, b = x[:, :16], x[:, 16:]
    expected = torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), 1)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_mlx_random_bits() -> None:
    """random.metal: Threefry of 2x32 bits, five rounds of four."""

    def threefry(key: tuple[int, int], count: tuple[int, int]) -> tuple[int, int]:
        keys = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
        x, y = ((c + k) & 0xFFFFFFFF for c, k in zip(count, keys, strict=False))
        for i in range(5):
            for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
                x = (x + y) & 0xFFFFFFFF
                y = ((y << r | y >> (32 - r)) & 0xFFFFFFFF) ^ x
            x = (x + keys[(i + 1) % 3]) & 0xFFFFFFFF
            y = (y + keys[(i + 2) % 3] + i + 1) & 0xFFFFFFFF
        return x, y

    keys = torch.tensor([[1, 2], [12345, 67890]], dtype=torch.int32)
    out = empty(2, 16, dtype=torch.int32)
    false = torch.zeros(1, dtype=torch.bool, device="mps")
    library(MLX, f"{IN_MLX}/random.metal").rbitsc(keys.to("mps"), out, false, 64, threads=(2, 8))
    expected = []
    for key in keys.tolist():
        pairs = [threefry((key[0], key[1]), (i, i + 8)) for i in range(8)]
        expected.append([x for x, _ in pairs] + [y for _, y in pairs])
    assert [[value & 0xFFFFFFFF for value in row] for row in out.tolist()] == expected


def test_mlx_products_with_weights_of_four_bits() -> None:
    """quantized.h: back to floats, and a matrix with a vector."""
    kernels = mlx(
        "steel/gemm/gemm.h",
        "quantized_utils.h",
        "quantized.h",
        instances="""
"back", affine_dequantize, float, 64, 4
"times", affine_qmv, float, 64, 4, false""",
    )
    rows, width = 16, 512
    q = torch.randint(0, 16, (rows, width))
    scales, biases = torch.rand(rows, width // 64), torch.randn(rows, width // 64)
    packed = (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8)
    weight = (q.view(rows, -1, 64) * scales[..., None] + biases[..., None]).view(rows, width)
    pm, sm, bm = on_mps(packed, scales, biases)
    out = empty(rows, width)
    kernels.back(pm, sm, bm, out, threads=(width // 2, rows))
    torch.testing.assert_close(out.cpu(), weight, rtol=1e-5, atol=1e-5)
    x, y = torch.randn(width), empty(rows)
    kernels.times(
        pm.view(torch.int32), sm, bm, x.to("mps"), y, width, rows, threads=(32, rows // 8 * 2, 1), group_size=(32, 2, 1)
    )
    torch.testing.assert_close(y.cpu(), weight @ x, rtol=1e-4, atol=1e-3)


def ggml() -> Any:
    """ggml-metal.metal with a dozen of its instances."""
    root = root_of("ggml-org/ggml")
    source = joined(root, ["src/ggml-metal/ggml-metal.metal"], ["src"])
    return both_forms(instances_alone(source, [f"kernel_{name}" for name in (*GGML, *GATES)]))


def packed(form: str, *values: float) -> torch.Tensor:
    """The bytes of a struct, aligned as C does it."""
    data = struct.pack(f"@{form}", *values)
    return torch.frombuffer(bytearray(data + bytes(-len(data) % 8)), dtype=torch.uint8).to("mps")


def test_ggml_blocks_of_weights() -> None:
    """ggml: quantise rows to 8 and to 4 bits, and back; rows by their numbers."""
    kernels = ggml()
    rows, width = 4, 128
    x = torch.randn(rows, width)
    for kind, block, levels in (("q8_0", 34, 127), ("q4_0", 18, 8)):
        count = width // 32
        stored, back = empty(rows, count * block, dtype=torch.uint8), empty(rows, width)
        strides = (4, 4 * width, 4 * width * rows, 4 * width * rows)
        narrow = (block, count * block, count * block * rows, count * block * rows)
        sizes = (width, rows, 1, 1)
        args = packed("q4q4Q4q4Q", count, *sizes, *strides, *sizes, *narrow)
        getattr(kernels, f"kernel_cpy_f32_{kind}")(
            args, x.to("mps"), stored, threads=(rows * count, 1, 1), group_size=(count, 1, 1)
        )
        args = packed("q4q4Q4q4Q", width // 16, *sizes, *narrow, *sizes, *strides)
        getattr(kernels, f"kernel_cpy_{kind}_f32")(
            args, stored, back, threads=(rows * width // 16, 1, 1), group_size=(width // 16, 1, 1)
        )
        top = x.view(rows, -1, 32).abs().amax(2, keepdim=True)
        error = (back.cpu().view(rows, -1, 32) - x.view(rows, -1, 32)).abs()
        assert bool((error <= top / levels * 1.01).all())
        if kind == "q8_0":
            which = torch.tensor([2, 0, 3]).int()
            got = empty(3, width)
            args = packed("iiQQQiQQQQQQ", width // 16, width, narrow[1], 0, 0, 3, 4, 12, 12, 4 * width, 0, 0)
            kernels.kernel_get_rows_q8_0(
                args, stored, which.to("mps"), got, threads=(3 * 8, 1, 1), group_size=(width // 16, 1, 1)
            )
            assert torch.equal(got.cpu(), back.cpu()[which.long()])


def test_ggml_gates_ranges_and_pools() -> None:
    """ggml: gated activations, a range, repeats, the maximum of windows, a step of SGD, a derivative."""
    kernels = ggml()
    a, b = torch.randn(3, 50), torch.randn(3, 50)
    for name, dtype, function in (
        ("swiglu_f32", torch.float32, F.silu),
        ("geglu_erf_f32", torch.float32, F.gelu),
        ("reglu_f16", torch.float16, F.relu),
    ):
        x, y, out = a.to(dtype), b.to(dtype), empty(3, 50, dtype=dtype)
        row = 50 * x.element_size()
        args = packed("iQiQiQiiff", 50, row, 50, row, 50, row, 0, 0, 0.0, 0.0)
        getattr(kernels, f"kernel_{name}")(args, *on_mps(x, y), out, threads=3 * 32, group_size=32)
        expected = (function(x.float()) * y.float()).to(dtype)
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-3, atol=1e-4)
    out = empty(40)
    kernels.kernel_arange_f32(packed("qff", 40, 3.0, 0.25), out, threads=(32, 1, 1), group_size=(32, 1, 1))
    assert torch.equal(out.cpu(), 3 + torch.arange(40) * 0.25)
    n = torch.arange(6).int().view(2, 3)
    out = empty(4, 9, dtype=torch.int32)
    args = packed("iiii4Qiiii4Q", 3, 2, 1, 1, 4, 12, 24, 24, 9, 4, 1, 1, 4, 36, 144, 144)
    kernels.kernel_repeat_i32(args, n.to("mps"), out, threads=(4 * 8, 1, 1), group_size=(8, 1, 1))
    assert torch.equal(out.cpu(), n.repeat(2, 3))
    image = torch.randn(2, 8, 10)
    out = empty(2, 4, 5)
    args = packed("iiiiiiqqqqq", 2, 2, 2, 2, 0, 0, 8, 10, 4, 5, 40)
    kernels.kernel_pool_2d_max_f32(args, image.to("mps"), out, threads=64, group_size=32)
    assert torch.equal(out.cpu(), F.max_pool2d(image, 2))
    kernels.kernel_pool_2d_avg_f32(args, image.to("mps"), out, threads=64, group_size=32)
    torch.testing.assert_close(out.cpu(), F.avg_pool2d(image, 2))
    x, g = a.flatten(), b.flatten()
    found = x.to("mps")
    pars = torch.tensor([0.1, 0.01])
    kernels.kernel_opt_step_sgd_f32(packed("q", 150), found, *on_mps(g, pars), threads=160, group_size=32)
    torch.testing.assert_close(found.cpu(), x * (1 - 0.1 * 0.01) - 0.1 * g)
    out = empty(150)
    kernels.kernel_silu_back_f32(packed("q", 150), *on_mps(g, x), out, threads=160, group_size=32)
    leaf = x.clone().requires_grad_()
    F.silu(leaf).backward(g)
    torch.testing.assert_close(out.cpu(), leaf.grad)


def test_activations_of_kernels_community() -> None:
    """Gated activations in chunks of a row, plain ones, the rectifier."""
    kernels = library(HF, "activation/activation_metal/activation.metal")
    x = torch.randn(4, 2 * 32)
    for name, dtype, function in (
        ("silu_and_mul_f32", torch.float32, F.silu),
        ("gelu_and_mul_f16", torch.half, F.gelu),
    ):
        given, out = x.to(dtype), empty(4, 32, dtype=dtype)
        getattr(kernels, name)(out, given.to("mps"), 32, threads=(4, 4))
        expected = (function(given[:, :32].float()) * given[:, 32:].float()).to(dtype)
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-3, atol=1e-3)
    relu = library(HF, "relu/relu_metal/relu.metal")
    for name, dtype in (("float", torch.float32), ("half", torch.half)):
        given, out = x.to(dtype), empty(4, 64, dtype=dtype)
        getattr(relu, f"relu_forward_kernel_{name}")(given.to("mps"), out)
        assert torch.equal(out.cpu(), given.relu())


def test_bits_and_weights_of_mistral() -> None:
    """mistral.rs: bitwise operators, and HQQ's weights of 8 and of 4 bits."""
    kernels = library(MISTRAL, "mistralrs-quant/src/metal_kernels/bitwise.metal")
    a, b = torch.randint(0, 256, (90,), dtype=torch.uint8), torch.randint(0, 256, (90,), dtype=torch.uint8)
    for name, expected in (("or", a | b), ("xor", a ^ b), ("and", a & b)):
        out = empty(90, dtype=torch.uint8)
        getattr(kernels, f"bitwise_{name}_uint8_t")(*on_mps(a, b), out, words(90), threads=90)
        assert torch.equal(out.cpu(), expected)
    kernels = library(MISTRAL, "mistralrs-quant/src/metal_kernels/hqq_dequantize.metal")
    weight, scale, zero = torch.randint(0, 256, (6, 10), dtype=torch.uint8), torch.rand(10), torch.rand(10)
    wm, sm, zm = on_mps(weight, scale, zero)
    out = empty(6, 10)
    kernels.dequantize_8bit_float(wm, sm, zm, out, words(6), words(10), threads=60)
    torch.testing.assert_close(out.cpu(), (weight - zero) * scale)
    out = empty(12, 10)
    kernels.dequantize_4bit_float(wm, sm, zm, out, words(6), words(10), threads=60)
    halves = torch.cat((weight >> 4, weight & 15))
    torch.testing.assert_close(out.cpu(), (halves - zero) * scale)
