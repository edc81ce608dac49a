"""Kernels of MLX that gather, scatter, reduce and take weights of few bits: run in all forms, and held to torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from public_kernels import empty, mlx, on_mps

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("virtual_device")]

# As mlx/backend/metal/jit/indexing.h writes a kernel around its functions.
GATHER = """
[[kernel]] void gather(
    const device float* src [[buffer(0)]], device float* out [[buffer(1)]], const constant int* shape [[buffer(2)]],
    const constant int64_t* strides [[buffer(3)]], const constant size_t& ndim [[buffer(4)]],
    const constant int* sizes [[buffer(5)]], const constant int* axes [[buffer(6)]],
    const constant int* idx_shapes [[buffer(7)]], const constant int64_t* idx_strides [[buffer(8)]],
    const constant bool* idx_contigs [[buffer(9)]], const constant int& idx_ndim [[buffer(10)]],
    const device int* idx0 [[buffer(11)]], const device int* idx1 [[buffer(12)]],
    uint3 index [[thread_position_in_grid]], uint3 grid_dim [[threads_per_grid]]) {
  Indices<int, 2> idxs{{ {idx0, idx1} }, idx_shapes, idx_strides, idx_contigs, idx_ndim};
  return gather_impl<float, int, 2, 1, int>(src, out, shape, strides, ndim, sizes, axes, idxs, index, grid_dim);
}
"""
SCATTER = """
[[kernel]] void scatter_NAME(
    const device TYPE* updates [[buffer(1)]], device mlx_atomic<TYPE>* out [[buffer(2)]],
    const constant int* upd_shape [[buffer(3)]], const constant int64_t* upd_strides [[buffer(4)]],
    const constant size_t& upd_ndim [[buffer(5)]], const constant size_t& upd_size [[buffer(6)]],
    const constant int* out_shape [[buffer(7)]], const constant int64_t* out_strides [[buffer(8)]],
    const constant size_t& out_ndim [[buffer(9)]], const constant int* axes [[buffer(10)]],
    const constant int* idx_shapes [[buffer(11)]], const constant int64_t* idx_strides [[buffer(12)]],
    const constant bool* idx_contigs [[buffer(13)]], const constant int& idx_ndim [[buffer(14)]],
    const constant size_t& idx_size [[buffer(15)]], const device int* idx0 [[buffer(16)]],
    uint2 gid [[thread_position_in_grid]]) {
  Indices<int, 1> idxs{{ {idx0} }, idx_shapes, idx_strides, idx_contigs, idx_ndim};
  return scatter_impl<TYPE, int, OP, 1, true, 1, int>(
      updates, out, upd_shape, upd_strides, upd_ndim, upd_size, out_shape, out_strides, out_ndim, axes, idx_size, idxs,
      gid);
}
"""


def ints(*values: int) -> torch.Tensor:
    """32-bit integers on the device."""
    return torch.tensor(values, dtype=torch.int32, device="mps")


def longs(*values: int) -> torch.Tensor:
    """64-bit integers on the device."""
    return torch.tensor(values, dtype=torch.int64, device="mps")


def flags(*values: bool) -> torch.Tensor:
    """Booleans on the device."""
    return torch.tensor(values, device="mps")


def test_mlx_gather() -> None:
    """x[i, j] of a tensor of three dimensions: slices along the last, and indices that count from the end."""
    kernels = mlx("indexing/gather.h", text=GATHER)
    x = torch.randn(6, 5, 7)
    i, j = torch.tensor([0, -1, 3, 2]), torch.tensor([4, 0, -2, 1])
    out = empty(4, 7)
    kernels.gather(
        *(x.to("mps"), out, ints(6, 5, 7), longs(35, 7, 1), 3, ints(1, 1, 7), ints(0, 1)),
        *(ints(4, 4), longs(1, 1), flags(True, True), ints(1), *on_mps(i.int(), j.int())),
        threads=(4, 1, 7),
        group_size=(4, 1, 7),
    )
    assert torch.equal(out.cpu(), x[i, j])


def test_mlx_scatter() -> None:
    """Rows that are added to, set, or compared, at indices that come again; halfs share a word of 32 bits."""
    cases = {
        "sum": ("float", "Sum<float>", torch.float32, "sum"),
        "half_sum": ("half", "Sum<half>", torch.float16, "sum"),
        "most": ("float", "Max<float>", torch.float32, "amax"),
        "least": ("int32_t", "Min<int32_t>", torch.int32, "amin"),
    }
    text = "".join(
        SCATTER.replace("NAME", name).replace("TYPE", kind).replace("OP", op) for name, (kind, op, *_) in cases.items()
    )
    kernels = mlx("reduce_utils.h", "indexing/scatter.h", text=text)
    index = torch.tensor([2, 0, -1, 2, 2, 1])
    for name, (_, _, dtype, reduce) in cases.items():
        values = torch.randint(-9, 10, (6, 5)).to(dtype)
        before = torch.randint(-9, 10, (4, 5)).to(dtype)
        out = before.to("mps")
        getattr(kernels, f"scatter_{name}")(
            *(
                empty(1),
                values.to("mps"),
                out,
                ints(6, 1, 5),
                longs(5, 5, 1),
                3,
                5,
                ints(4, 5),
                longs(5, 1),
                2,
                ints(0),
            ),
            *(ints(6), longs(1), flags(True), ints(1), 6, index.int().to("mps")),
            threads=(5, 6),
            group_size=(5, 6),
        )
        rows = (index % 4)[:, None].expand(6, 5)
        assert torch.equal(out.cpu(), before.scatter_reduce(0, rows, values, reduce))


def test_mlx_reductions() -> None:
    """All of a tensor, its rows, its columns, and rows that lie apart: sums, products, extremes, and, or."""
    kernels = mlx(
        "reduce_utils.h",
        "reduce.h",
        instances="""
"all_sum", all_reduce, float, float, Sum<float>, int
"all_most", all_reduce, float, float, Max<float>, int
"row_sum", row_reduce_simple, float, float, Sum<float>, int
"row_product", row_reduce_simple, float, float, Prod<float>, int
"row_and", row_reduce_simple, bool, bool, And<bool>, int
"parts_least", row_reduce_small, float, float, Min<float>, int, 1
"column_sum", col_reduce_small, float, float, Sum<float>, int, 1
"column_most", col_reduce_looped, float, float, Max<float>, int, 1, 32, 32""",
    )
    torch.manual_seed(0)
    x = torch.randn(12, 300)
    xm = x.to("mps")
    for name, expected in (("all_sum", x.sum()), ("all_most", x.max())):
        out = empty(1)
        getattr(kernels, name)(xm, out, 3600, 3600, threads=(256, 1, 1), group_size=(256, 1, 1))
        torch.testing.assert_close(out.cpu()[0], expected, rtol=1e-5, atol=1e-4)
    near = 1 + x / 50
    yes = torch.rand(12, 300) > 0.003
    for name, given, expected in (
        ("row_sum", x, x.sum(1)),
        ("row_product", near, near.prod(1)),
        ("row_and", yes, yes.all(1)),
    ):
        out = empty(12, dtype=expected.dtype)
        # Four rows a group.
        launch = {"threads": (64, 3, 1), "group_size": (64, 1, 1)}
        getattr(kernels, name)(given.to("mps"), out, 300, longs(12), **launch)
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-4)
    # Of [12, 60, 5] the first axis is kept: rows of 5 that lie 60 times one behind the other.
    out = empty(12)
    kernels.parts_least(
        *(xm, out, 5, 60, ints(12), longs(300), ints(1), ints(60), longs(5), ints(1)),
        threads=(32, 12, 1),
        group_size=(32, 1, 1),
    )
    assert torch.equal(out.cpu(), x.min(1).values)
    out = empty(300)
    kernels.column_sum(
        *(xm, out, 12, 300, ints(1), longs(0), ints(0), ints(12), longs(300), ints(1), 1),
        threads=(96, 4, 1),
        group_size=(32, 4, 1),
    )
    torch.testing.assert_close(out.cpu(), x.sum(0), rtol=1e-5, atol=1e-5)
    out = empty(300)
    kernels.column_most(
        *(xm, out, 12, 300, ints(1), longs(0), ints(0), ints(12), longs(300), ints(1), 1),
        threads=(256 * 10, 1, 1),
        group_size=(256, 1, 1),
    )
    assert torch.equal(out.cpu(), x.max(0).values)


def quantised(kernels: Any, weights: torch.Tensor, bits: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What affine_quantize packs, with scales and offsets; and the numbers that those stand for, by torch."""
    rows, columns = weights.shape
    packed = empty(rows, columns * bits // 8, dtype=torch.uint8)
    scales, biases = empty(rows, columns // 64), empty(rows, columns // 64)
    per = 64 // 32  # values a thread
    getattr(kernels, f"quantize{bits}")(
        *(weights.to("mps"), packed, scales, biases), threads=(rows * columns // per, 1), group_size=(32, 1)
    )
    out = packed.cpu()
    digits = out if bits == 8 else torch.stack([out & 15, out >> 4], 2).flatten(1)
    grouped = digits.float().view(rows, -1, 64) * scales.cpu()[..., None] + biases.cpu()[..., None]
    return [packed.view(torch.int32), scales, biases], grouped.view(rows, columns)


@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_weights_of_few_bits(bits: int) -> None:
    """affine_quantize, affine_dequantize, and products with a vector and with a matrix."""
    kernels = mlx(
        "steel/gemm/gemm.h",
        "quantized_utils.h",
        "quantized.h",
        constants={"align_M": "false", "align_N": "false", "align_K": "false"},
        instances=f"""
"quantize{bits}", affine_quantize, float, 64, {bits}
"dequantize", affine_dequantize, float, 64, {bits}
"vector", affine_qmv, float, 64, {bits}, false
"vector_fast", affine_qmv_fast, float, 64, {bits}, false
"matrix", affine_qmm_t, float, 64, {bits}, true, false""",
    )
    torch.manual_seed(0)
    weights = torch.randn(64, 512)
    parts, numbers = quantised(kernels, weights, bits)
    spread = (weights.view(64, 8, 64).amax(2) - weights.view(64, 8, 64).amin(2)).max()
    assert (numbers - weights).abs().max() < spread / 2**bits
    out = empty(64, 512)
    per = 8 // bits
    kernels.dequantize(parts[0].view(torch.uint8), *parts[1:], out, threads=(64 * 512 // per, 1), group_size=(256, 1))
    torch.testing.assert_close(out.cpu(), numbers, rtol=1e-6, atol=1e-6)
    none = [0, ints(0), longs(0), 0, ints(0), longs(0), longs(0), longs(0)]
    x = torch.randn(5, 512)
    for name in ("vector", "vector_fast"):
        out = empty(5, 64)
        launch = {"threads": (5 * 32, 8 * 2, 1), "group_size": (32, 2, 1)}
        getattr(kernels, name)(*parts, x.to("mps"), out, 512, 64, *none, **launch)
        torch.testing.assert_close(out.cpu(), functional.linear(x, numbers), rtol=1e-4, atol=1e-3)
    x = torch.randn(40, 512)
    out = empty(40, 64)
    launch = {"threads": (2 * 32, 2 * 2, 2), "group_size": (32, 2, 2)}
    kernels.matrix(*parts, x.to("mps"), out, 512, 64, 40, *none, **launch)
    torch.testing.assert_close(out.cpu(), functional.linear(x, numbers), rtol=1e-4, atol=1e-3)
