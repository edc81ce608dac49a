"""Kernels of ggml: run in all forms, and held to torch.

What a program for torch has to write into the text is written there: values of function constants, and threadgroup
memory that is declared in the kernel and is no parameter.
"""

from __future__ import annotations

import re
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


ONE_BATCH = {"ne12": "1", "ne13": "1", "r2": "1", "r3": "1"}


def quantised(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights as ggml packs them: bytes of 4 bits with a scale each 32 values, of 8 bits, and both as numbers."""
    torch.manual_seed(0)
    scale = (torch.rand(rows, columns // 32, 1) / 8 + 0.01).half()
    four = torch.randint(0, 16, (rows, columns // 32, 32), dtype=torch.uint8)
    packed = four[..., :16] | four[..., 16:] << 4
    bits = scale.view(torch.uint8).view(rows, -1, 2)
    q4 = torch.cat([bits, packed], 2).contiguous()
    return q4.to("mps"), ((four.float() - 8) * scale.float()).view(rows, columns), scale


def test_ggml_products_with_a_vector() -> None:
    """mul_mv of 4-bit and 8-bit weights, two SIMD groups a group, several rows a SIMD group."""
    text = whole()
    products = text[text.index("inline float block_q_n_dot_y(") : text.index("kernel void kernel_mul_mv_q4_1_f32(")]
    eight_bits = text[text.index("template<short NR0, typename args_t>\nvoid kernel_mul_mv_q8_0_f32_impl(") :]
    eight_bits = eight_bits[: eight_bits.index("\n}\n", eight_bits.index("kernel void kernel_mul_mv_q8_0_f32(")) + 3]
    constants = {f"FC_mul_mv_{name}": value for name, value in (ONE_BATCH | {"nsg": "2"}).items()}
    shader = both_forms(with_constants(head() + products + eight_bits, constants))
    rows, columns = 18, 256
    q4, weights, scale = quantised(rows, columns)
    x = torch.randn(3, columns)
    eight = torch.randint(-127, 128, (rows, columns // 32, 32), dtype=torch.int8)
    q8 = torch.cat([scale.view(torch.uint8).view(rows, -1, 2), eight.view(torch.uint8)], 2).contiguous().to("mps")
    for name, packed, expected, at_once in (
        ("q4_0", q4, x @ weights.T, 8),
        ("q8_0", q8, x @ (eight.float() * scale.float()).view(rows, columns).T, 2),
    ):
        step = packed[0].numel()
        size = packed[0, 0].numel()
        args = arguments(
            *("3i4x4Q3i4x4Q3i2h", columns, rows, 1, size, step, step * rows, step * rows),
            *(columns, 3, 1, 4, columns * 4, columns * 12, columns * 12, rows, 3, 0, 1, 1),
        )
        out = empty(3, rows)
        groups = -(-rows // at_once)
        getattr(shader, f"kernel_mul_mv_{name}_f32")(
            args, packed, x.to("mps"), out, threads=(groups * 32, 3 * 2, 1), group_size=(32, 2, 1)
        )
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_ggml_products_of_matrices() -> None:
    """mul_mm of halfs and 4-bit weights in 8x8 matrices of a SIMD group; the result's last tiles are parts."""
    text = whole()
    start = text.index("constant bool FC_mul_mm_bc_inp")
    kernel = text[start : text.index("template<short ne20>", start)]
    kinds = text[text.index("typedef decltype(kernel_mul_mm<") :]
    wanted = [line for line in kinds.splitlines() if "mul_mm_t;" in line or re.search(r"mul_mm_(f16|q4_0)_f32\"", line)]
    constants = {f"FC_mul_mm_{name}": value for name, value in ONE_BATCH.items()}
    constants |= {"FC_mul_mm_bc_inp": "true", "FC_mul_mm_bc_out": "true"}
    shader = both_forms(with_constants(head() + kernel + "\n".join(wanted) + "\n", constants))
    rows, columns, count = 72, 64, 41  # it writes four rows at once, wherever the first of a column lies
    q4, weights, _ = quantised(rows, columns)
    x = torch.randn(count, columns)
    half = torch.randn(rows, columns).half()
    for name, matrix, expected in (("f16", half.to("mps"), x @ half.float().T), ("q4_0", q4, x @ weights.T)):
        step = matrix[0].numel() * matrix.element_size()
        args = arguments(
            *("ii3Qi4x4Qii2h", columns, 1, step, step * rows, step * rows, 1),
            *(4, columns * 4, columns * 4 * count, columns * 4 * count, rows, count, 1, 1),
        )
        out = empty(count, rows)
        getattr(shader, f"kernel_mul_mm_{name}_f32")(
            args, matrix, x.to("mps"), out, threads=(2 * 128, 2, 1), group_size=(128, 1, 1)
        )
        torch.testing.assert_close(out.cpu(), expected, rtol=5e-3, atol=5e-2)
