"""Kernels of MLX and mistral.rs: run in both forms, and held to torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from public_kernels import (
    both_forms,
    empty,
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
MISTRAL = "EricLBuehler/mistral.rs"


def mlx(*files: str, instances: str, constants: dict[str, str] | None = None) -> Any:
    """Headers of MLX with these instances behind, as its own just-in-time compiler writes them."""
    text = joined(root_of(MLX), [f"{IN_MLX}/{file}" for file in ("defines.h", "utils.h", *files)])
    lines = "".join(f"\ninstantiate_kernel({line.strip()})" for line in instances.strip().splitlines())
    return both_forms(with_constants(text, constants or {}) + lines + "\n")


def whole(values: list[int]) -> torch.Tensor:
    """64-bit integers on the device."""
    return torch.tensor(values, dtype=torch.int64, device="mps")


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
