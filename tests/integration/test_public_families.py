"""Kernels of MLX and mistral.rs: run in both forms, and held to torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from public_kernels import (
    empty,
    library,
    mlx,
    on_mps,
    words,
)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("virtual_device")]

MLX = "ml-explore/mlx"
IN_MLX = "mlx/backend/metal/kernels"
MISTRAL = "EricLBuehler/mistral.rs"


def whole(values: list[int]) -> torch.Tensor:
    """64-bit integers on the device."""
    return torch.tensor(values, dtype=torch.int64, device="mps")


UNARY: dict[str, Any] = {
    "Abs": torch.abs,
    "ArcCos": torch.acos,
    "ArcCosh": torch.acosh,
    "ArcSinh": torch.asinh,
    "ArcTan": torch.atan,
    "ArcTanh": torch.atanh,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "ErfInv": torch.erfinv,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Log": torch.log,
    "Log1p": torch.log1p,
    "Log2": torch.log2,
    "Negative": torch.neg,
    "Round": torch.round,
    "Rsqrt": torch.rsqrt,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Square": torch.square,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
FLOATS = {"float": torch.float32, "half": torch.float16, "bfloat16_t": torch.bfloat16}
CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
OFF = {"Expm1": 2e-4}  # MLX's takes one float for log(2): each turn of it adds 1.4e-6


def held(got: torch.Tensor, expected: torch.Tensor, off: float = 0.0) -> None:
    """As near as the type allows, or as `off` says."""
    off = max(off, CLOSE[got.dtype])
    torch.testing.assert_close(got.cpu(), expected.to(got.dtype), rtol=off, atol=off, equal_nan=True)


def test_mlx_functions_of_a_number() -> None:
    """unary.h: each function for each type of float, and integers with their limits."""
    names = [(op, kind) for op in UNARY for kind in FLOATS]
    integers = [(op, kind) for op in ("Abs", "Sign", "Square") for kind in ("int8_t", "int64_t", "uint16_t")]
    kernels = mlx(
        "unary_ops.h",
        "unary.h",
        instances="\n".join(f'"{op}_{kind}", unary_v, {kind}, {kind}, {op}' for op, kind in names + integers),
    )
    ends = torch.tensor([0.0, -0.0, 0.5, -2.5, 1e-3, 88.0, -88.0, 1e-30, 3e37, torch.inf, -torch.inf, torch.nan])
    base = torch.cat((torch.randn(200) * 3, torch.rand(100) * 2 - 1, ends))
    for op, kind in names:
        x = base.to(FLOATS[kind])
        if op in ("Sin", "Cos", "Tan"):
            x = x[(x.abs() < 1e15) | ~x.isfinite()]
        out = empty(len(x), dtype=x.dtype)
        each = 8 // x.element_size()
        getattr(kernels, f"{op}_{kind}")(x.to("mps"), out, len(x), threads=-(-len(x) // each))
        held(out, UNARY[op](x.double()), OFF.get(op, 0.0))
    for op, kind in integers:
        dtype = getattr(torch, kind.removesuffix("_t"))
        limits = torch.iinfo(dtype)
        values = [0, 1, 5, limits.max, limits.min, limits.max - 1, *range(30, 60)]
        numbers = torch.tensor(values, dtype=dtype)
        got = empty(len(values), dtype=dtype)
        getattr(kernels, f"{op}_{kind}")(numbers.to("mps"), got, len(values), threads=len(values))
        exact = {"Abs": abs, "Sign": lambda v: (v > 0) - (v < 0), "Square": lambda v: v * v}[op]
        mask = 256**dtype.itemsize - 1
        assert [v & mask for v in got.tolist()] == [exact(v) & mask for v in values]


def test_mlx_sorts_and_arguments() -> None:
    """sort.h and arg_reduce.metal: rows with equal numbers, NaN and all lanes in use."""
    instances = "".join(
        f'"sort_{t}", block_sort, {t}, {t}, false, 128, 4\n"order_{t}", block_sort, {t}, uint, true, 128, 4\n'
        for t in ("float", "half", "int8_t", "int64_t")
    )
    sorts = mlx("sort.h", instances=instances)
    arguments = library(MLX, f"{IN_MLX}/arg_reduce.metal")
    for kind, dtype in (
        ("float", torch.float32),
        ("half", torch.float16),
        ("int8_t", torch.int8),
        ("int64_t", torch.int64),
    ):
        x = (torch.randn(4, 301) * 20).to(dtype)
        launch = {"threads": (128, 4, 1), "group_size": (128, 1, 1)}
        out, order = empty(4, 301, dtype=dtype), empty(4, 301, dtype=torch.int32)
        getattr(sorts, f"sort_{kind}")(x.to("mps"), out, 301, 1, 1, 301, 301, **launch)
        getattr(sorts, f"order_{kind}")(x.to("mps"), order, 301, 1, 1, 301, 301, **launch)
        assert torch.equal(out.cpu(), x.sort(1)[0])
        assert torch.equal(x.gather(1, order.cpu().long()), out.cpu())
        name = str(dtype).removeprefix("torch.")
        x = x.abs() + (x == 0)  # no zero, which no lane may bring
        for op, value in (("argmin", x.amin(1)), ("argmax", x.amax(1))):
            first = (x == value[:, None]).int().argmax(1)
            at = empty(4, dtype=torch.int32)
            launch = {"threads": (96, 4, 1), "group_size": (96, 1, 1)}
            getattr(arguments, f"{op}_{name}")(
                x.to("mps"), at, words(4), whole([301]), whole([1]), whole([1]), 1, 301, **launch
            )
            assert torch.equal(at.cpu().long(), first)


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
