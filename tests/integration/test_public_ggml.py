"""Kernels of ggml: run in all forms, and held to torch.

What a program for torch has to write into the text is written there: values of function constants, and threadgroup
memory that is declared in the kernel and is no parameter.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import pytest
import torch
from torch.nn import functional

from public_kernels import both_forms, empty, joined, on_mps, root_of, with_constants, with_threadgroup_memory

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("virtual_device")]

GGML = "ggml-org/ggml"


@cache
def whole() -> str:
    """The source with its headers, and with threadgroup memory in the kernels."""
    text = joined(root_of(GGML), ["src/ggml-metal/ggml-metal.metal"], ["src"])
    return with_threadgroup_memory(text)


def part(first: str, end: str) -> str:
    """From the template of one kernel to another's."""
    text = whole()
    start = text.rindex("\ntemplate", 0, text.index(f"kernel void {first}("))
    return text[start : text.index(end, start)]


def head() -> str:
    """All before the first kernel."""
    text = whole()
    return text[: text.index("constant short FC_unary_op")]


def kernels(*parts: tuple[str, str], before: str = "") -> Any:
    """The parts as a library."""
    return both_forms(head() + before + "".join(part(*p) for p in parts))


def arguments(layout: str, *values: float) -> torch.Tensor:
    """A struct of C, as bytes on the device."""
    return torch.tensor(list(struct.pack(layout, *values)), dtype=torch.uint8, device="mps")


def strides(*sizes: int, size: int = 4) -> tuple[int, ...]:
    """The steps of a contiguous tensor in bytes, the innermost first."""
    found = [size]
    for count in sizes[:-1]:
        found.append(found[-1] * count)
    return tuple(found)


UNARY = {
    "103": lambda x: functional.gelu(x, approximate="tanh"),
    "106": functional.silu,
    "110": torch.sign,
    "115": functional.softplus,
    "116": torch.expm1,
    "119": lambda x: x.sign() * (x.abs() + 0.5).floor(),
}


@pytest.mark.parametrize("op", UNARY)
def test_ggml_functions_of_a_number(op: str) -> None:
    """kernel_unary, whose operation is a function constant: floats, halfs and four at a time."""
    shader = both_forms(
        with_constants(
            whole()[: whole().index("kernel void kernel_silu_back_f32(")], {"FC_unary_op": op, "FC_unary_cnt": "true"}
        )
    )
    x = torch.randn(400) * 3
    args = arguments("4i4Q4i4Q6f", 400, 1, 1, 1, *[4] * 4, 400, 1, 1, 1, *[4] * 4, 0, 2, 3, 0, 0, 0)
    for name, dtype, count in (("f32_f32", torch.float32, 400), ("f32_f32_4", torch.float32, 100)):
        out = empty(400, dtype=dtype)
        getattr(shader, f"kernel_unary_{name}")(args, x.to("mps"), out, threads=count, group_size=1)
        torch.testing.assert_close(out.cpu(), UNARY[op](x.double()).float(), rtol=2e-5, atol=2e-5)
    out = empty(400, dtype=torch.float16)
    shader.kernel_unary_f16_f16(args, x.half().to("mps"), out, threads=400, group_size=1)
    torch.testing.assert_close(out.cpu(), UNARY[op](x.half().double()).half(), rtol=2e-3, atol=2e-3)


def test_ggml_gates_and_repeats() -> None:
    """Gated linear units, and a tensor that is repeated along all axes."""
    shader = kernels(("kernel_repeat", "kernel void kernel_op_sum_f32("))
    a, b = torch.randn(7, 90), torch.randn(7, 90)
    args = arguments("iQiQiQiiff", 90, 360, 90, 360, 90, 360, 0, 0, 0, 0)
    for name, expected in (
        ("reglu", functional.relu(a) * b),
        ("geglu", functional.gelu(a, approximate="tanh") * b),
        ("swiglu", functional.silu(a) * b),
        ("geglu_erf", functional.gelu(a) * b),
    ):
        out = empty(7, 90)
        getattr(shader, f"kernel_{name}_f32")(args, *on_mps(a, b), out, threads=7 * 45, group_size=45)
        torch.testing.assert_close(out.cpu(), expected, rtol=2e-5, atol=2e-5)
    x = torch.randn(2, 3, 4)
    out = empty(4, 3, 8)
    args = arguments("4i4Q4i4Q", 4, 3, 2, 1, *strides(4, 3, 2, 1), 8, 3, 4, 1, *strides(8, 3, 4, 1))
    shader.kernel_repeat_f32(args, x.to("mps"), out, threads=(3 * 8, 4, 1), group_size=(8, 1, 1))
    assert torch.equal(out.cpu(), x.repeat(2, 1, 2))


def test_ggml_rows() -> None:
    """Softmax with a mask, RMS norms, layer norms and sums, of one SIMD group and of several."""
    shader = kernels(
        ("kernel_soft_max", "kernel void kernel_ssm_conv_f32_f32("),
        ("kernel_norm_fuse_impl", "template <typename T0, typename T>\nkernel void kernel_l2_norm_impl("),
    )
    sums = kernels(
        ("kernel_sum_rows_impl", "template<typename T>\nkernel void kernel_cumsum_blk("),
        before="constant short FC_sum_rows_op = OP_SUM_ROWS_NUM_SUM_ROWS;\n",
    )
    x, mask = torch.randn(6, 200), torch.randn(6, 200)
    weight, bias = torch.randn(200), torch.randn(200)
    row = (800, 4800, 4800)
    for group in (32, 128):
        launch = {"threads": (6 * group, 1, 1), "group_size": (group, 1, 1)}
        args = arguments("3i3Q3i6Q4fi", 200, 6, 1, *row, 6, 1, 1, *row, *row, 0.5, 0, 0, 0, 0)
        xm, mm = on_mps(x, mask)
        out = empty(6, 200)
        shader.kernel_soft_max_f32(args, xm, mm, xm, out, **launch)
        torch.testing.assert_close(out.cpu(), (x * 0.5 + mask).softmax(1), rtol=1e-5, atol=1e-6)
        steps = (800, 0, 0)
        for four, suffix in ((1, ""), (4, "_4")):
            args = arguments("ii3Qf9i9Q", 200, 200 // four, *row, 1e-5, *[1] * 9, *steps, 4800, 0, 0, 4800, 0, 0)
            wm, bm = on_mps(weight, bias)
            normed = functional.rms_norm(x, (200,), eps=1e-5)
            layer = functional.layer_norm(x, (200,))
            for name, expected in (
                ("rms_norm", normed),
                ("rms_norm_mul", normed * weight),
                ("rms_norm_mul_add", normed * weight + bias),
                ("norm", layer),
                ("norm_mul_add", layer * weight + bias),
            ):
                out = empty(6, 200)
                getattr(shader, f"kernel_{name}_f32{suffix}")(args, xm, wm, bm, out, **launch)
                torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)
            if four == 4 or group == 32:
                out = empty(6)
                args = arguments("4q4Q4q4Q", 200 // four, 6, 1, 1, 4, *row, 1, 6, 1, 1, 4, 4, 24, 24)
                getattr(sums, f"kernel_sum_rows_f32_f32{suffix}")(args, xm, out, **launch)
                torch.testing.assert_close(out.cpu(), x.sum(1), rtol=1e-5, atol=1e-4)


def test_ggml_sorts() -> None:
    """A bitonic sort of indices, up and down, whose group is wider than a row."""
    text = whole()
    shader = both_forms(
        head() + text[text.index("typedef void (argsort_t)(") : text.index("typedef void (argsort_merge_t)(")]
    )
    x = torch.randn(5, 100)
    args = arguments("4i4Q5i", 100, 5, 1, 1, 4, 400, 2000, 2000, 100, 5, 1, 1, 100)
    for name, descending in (("asc", False), ("desc", True)):
        out = empty(5, 100, dtype=torch.int32)
        getattr(shader, f"kernel_argsort_f32_i32_{name}")(
            args, x.to("mps"), out, threads=(5 * 128, 1, 1), group_size=(128, 1, 1)
        )
        assert torch.equal(out.cpu().long(), x.argsort(1, descending=descending))


def test_ggml_rows_by_index() -> None:
    """get_rows of floats and halfs."""
    shader = kernels(("kernel_get_rows_f", "typedef decltype(kernel_get_rows_q<"))
    rows = torch.tensor([4, 0, 2], dtype=torch.int32)
    x = torch.randn(5, 100)
    for name, table in (("f32", x), ("f16", x.half())):
        size = table.element_size()
        args = arguments("iiQQQiQQQQQQ", 100, 100, 100 * size, 500 * size, 500 * size, 3, 4, 12, 12, 400, 1200, 1200)
        out = empty(3, 100)
        getattr(shader, f"kernel_get_rows_{name}")(
            args, table.to("mps"), rows.to("mps"), out, threads=(3 * 4 * 32, 1, 1), group_size=(32, 1, 1)
        )
        assert torch.equal(out.cpu(), table.float()[rows.long()])
