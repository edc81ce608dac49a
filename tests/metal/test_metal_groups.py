"""Threads that work together: barriers, threadgroup memory, SIMD groups, 8x8 matrices, atomics."""

from __future__ import annotations

import pytest
import torch

from metal_shaders import GROUPS, library

pytestmark = pytest.mark.usefixtures("virtual_device")


def close(left: torch.Tensor, right: torch.Tensor) -> None:
    """Equal but for rounding."""
    torch.testing.assert_close(left.cpu(), right, rtol=2e-6, atol=2e-5)


def test_tiled_matrix_product() -> None:
    """Barriers in a loop, threadgroup memory in two dimensions, edge groups that have fewer threads than a tile."""
    a, b = torch.randn(21, 13), torch.randn(13, 18)
    size = torch.tensor([18, 21, 13, 0], dtype=torch.int32, device="mps")
    out = torch.zeros(24, 24, device="mps")
    flat = torch.zeros(21, 18, device="mps")
    library(GROUPS).matmul(flat, a.to("mps"), b.to("mps"), size, threads=(24, 24), group_size=(8, 8))
    close(flat, a @ b)
    assert out.abs().sum().item() == 0


@pytest.mark.parametrize("group", [1024, 256, 64])
def test_tree_reduction(group: int) -> None:
    """Many groups with barriers in a loop, for floats and integers."""
    x = torch.randn(2500)
    groups = -(-2500 // group)
    out = torch.zeros(groups, device="mps")
    count = torch.tensor([2500], dtype=torch.int32, device="mps")
    library(GROUPS).tree_float(out, x.to("mps"), count, threads=groups * group, group_size=group)
    padded = torch.cat([x, torch.zeros(groups * group - 2500)])
    close(out, padded.view(groups, group).sum(1))
    whole = torch.randint(-99, 99, (2500,), dtype=torch.int32)
    out = torch.zeros(groups, dtype=torch.int32, device="mps")
    library(GROUPS).tree_int(out, whole.to("mps"), count, threads=groups * group, group_size=group)
    assert whole.sum().item() == out.sum().item()
    assert library(GROUPS).tree_float.static_thread_group_memory_length == 4096


def test_product_of_matrices_that_a_simd_group_holds() -> None:
    """simdgroup_load (one transposed), multiply_accumulate and store."""
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    out = torch.zeros(8, 8, device="mps")
    library(GROUPS).product8(out, a.to("mps"), b.to("mps"), threads=32, group_size=32)
    close(out, a @ b.T + 1)


def test_atomics_lose_nothing() -> None:
    """Additions, minima and maxima of many threads at one place."""
    values = torch.randint(0, 16, (100_000,), dtype=torch.int32)
    bins = torch.zeros(16, dtype=torch.int32, device="mps")
    library(GROUPS).histogram(bins, values.to("mps"), threads=100_000)
    assert values.bincount(minlength=16).tolist() == bins.tolist()
    out = torch.tensor([50, 3], dtype=torch.int32, device="mps")
    total = torch.zeros(1, device="mps")
    library(GROUPS).extremes(out, total, values.to("mps"), threads=100_000)
    assert [0, 15] == out.tolist()
    assert total.item() == 50_000


def test_a_thread_that_has_returned_is_not_waited_for() -> None:
    """A barrier opens for those that are left."""
    out = torch.full((64,), -1, dtype=torch.int32, device="mps")
    library(GROUPS).leaves_early(out, 40, threads=64, group_size=64)
    assert [(i + 1) % 40 for i in range(40)] + [-1] * 24 == out.tolist()


def test_lanes_of_simd_groups() -> None:
    """Shuffles, prefixes, votes and quads of whole and partial groups; absent lanes are zero, shifts do not wrap."""
    out = torch.zeros(40, 16, dtype=torch.int32, device="mps")
    library(GROUPS).lanes(out, threads=40, group_size=40)
    rows = out.tolist()
    for i, row in enumerate(rows):
        first = i // 32 * 32
        there = range(first, min(first + 32, 40))

        def lane(number: int, there: range = there, first: int = first) -> int:
            return number if number in there and first <= number < first + 32 else 0

        thirds = sum(n % 3 == 0 for n in there)
        assert row[:14] == [
            lane(i + 1) if i != 31 else 31,
            lane(i - 2) if i - 2 >= first else i,
            lane(i ^ 5),
            lane(first + 7),
            sum(range(first, i + 1)),
            sum(range(first, i)),
            sum(range(i // 4 * 4, i // 4 * 4 + 4)),
            i ^ 1,
            1,
            0x55,
            i + 3 if lane(i + 3) else (-1 if i + 3 >= first + 32 else 0),
            there[0] + there[-1],
            thirds if i % 3 == 0 else thirds - len(there),
            len(there),
        ], i


def test_threadgroup_memory_with_a_value() -> None:
    """Every thread writes it: a number, arrays, several in one statement, in a template; and a cast that names it."""
    kernels = torch.mps.compile_shader("""
#include <metal_stdlib>
using namespace metal;
kernel void several(device float* out, uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]]) {
  threadgroup float a = 0.5, b[3] = {1, 2}, c;
  threadgroup uint pairs[2][2] = {{1, 2}, {3, 4}}, last{7};
  if (l == 3) c = 8;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = a + b[0] + 10 * b[1] + 100 * b[2] + c + 1000 * (pairs[1][0] + pairs[1][1]) + 10000 * last;
}
template <typename T> kernel void one(device T* out, uint i [[thread_position_in_grid]]) {
  threadgroup T first = T(2);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd_sum(1) == 32) out[i] = first;
}
template [[host_name("one_int")]] kernel void one<int>(device int*, uint);
kernel void cast(device float2* out, uint i [[thread_position_in_grid]]) {
  threadgroup float both[4];
  both[i % 4] = i % 4;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float2 pair = *reinterpret_cast<threadgroup float2*>(both + 2);
  out[i] = pair;
}
""")
    out = torch.zeros(64, device="mps")
    kernels.several(out, group_size=32)
    assert out.tolist() == [0.5 + 1 + 20 + 8 + 7000 + 70000] * 64
    whole = torch.zeros(64, dtype=torch.int32, device="mps")
    kernels.one_int(whole, group_size=32)
    assert whole.tolist() == [2] * 64
    pairs = torch.zeros(8, 2, device="mps")
    kernels.cast(pairs, threads=8, group_size=4)
    assert pairs.tolist() == [[2, 3]] * 8
