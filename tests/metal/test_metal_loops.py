"""Kernels whose threads meet at the top of the body alone run as loops, and give what fibers give, to the bit."""

from __future__ import annotations

import pytest
import torch

from anymps.rules import installed_torch
from metal.forms import FIBERS, GROUPS, TORCH, forms, written_by_both
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")


def in_style_of_inductor(name: str, element: str = "float") -> str:
    """A row a group: a collective, and something that needs both its result and the thread's own value."""
    return f"""
    [[max_total_threads_per_threadgroup(1024)]]
    kernel void {name}_{element}(device {element}* out, device {element}* all, constant {element}* in,
        constant long& size, uint2 thread_pos [[thread_position_in_grid]],
        uint2 group_pos [[thread_position_in_threadgroup]]) {{
      auto xindex = thread_pos.x;
      auto r0_index = thread_pos.y;
      int r0_1 = r0_index;
      int x0 = xindex;
      threadgroup {element} shared[32];
      auto tmp0 = in[r0_1 + size * x0];
      auto tmp1 = c10::metal::threadgroup_{name}(shared, tmp0, r0_index * 1, size);
      if (r0_index == 0) all[x0] = static_cast<{element}>(tmp1);
      auto tmp2 = tmp0 - tmp1;
      out[r0_1 + size * x0] = static_cast<{element}>(tmp2);
    }}"""


SIZES = (1, 31, 32, 33, 64, 100, 256, 512, 736, 992, 1024)
DTYPES = {"float": torch.float32, "int": torch.int32, "long": torch.int64}


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_reductions_of_rows(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Every type and whole and partial SIMD groups; a NaN, zeros of both signs, infinities; integers of 64 bits."""
    source = TORCH + "".join(in_style_of_inductor(name, element) for element in DTYPES)
    for element, dtype in DTYPES.items():
        loops, fibers = forms(monkeypatch, source, f"{name}_{element}")
        for size in SIZES:
            x = torch.randn(5, size).mul(4 if dtype != torch.float32 else 1).to(dtype)
            if dtype == torch.float32 and size > 1:
                x[1] = torch.where(x[1] > 0, 0.0, -0.0)
                x[2, size // 2] = torch.nan
                x[3, size // 2 :] = -torch.inf
                x[4, 1::2] = torch.inf
            results = []
            for kernel in (loops, fibers):
                out, whole = torch.zeros(5, size, dtype=dtype, device="mps"), torch.zeros(5, dtype=dtype, device="mps")
                kernel(out, whole, x.to("mps"), size, threads=(5, size), group_size=(1, size))
                results.append((out.cpu(), whole.cpu()))
            for left, right in zip(*results, strict=True):
                assert torch.equal(left.isnan(), right.isnan())
                left, right = left.nan_to_num(7, torch.inf, -torch.inf), right.nan_to_num(7, torch.inf, -torch.inf)
                assert torch.equal(left, right) and torch.equal(left.signbit(), right.signbit())
            if name == "sum" and dtype != torch.float32:
                assert torch.equal(results[0][1], x.sum(1, dtype=dtype))


BODIES = (
    HEAD
    + TORCH
    + """
kernel void norm(device float* out, constant float* in, constant uint& size, uint2 at [[thread_position_in_grid]]) {
  int x = at.x;
  auto r = at.y;
  threadgroup float shared[1024];
  auto value = in[r + size * x];
  shared[r * 1] = value;
  auto found = c10::metal::threadgroup_welford_reduce(shared, size);
  auto scale = metal::precise::rsqrt(found.y / size + 1e-5);
  out[r + size * x] = (value - found.x) * scale;
}
kernel void softmax(device float* out, constant float* in, constant uint& size,
                    uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float top = -INFINITY, sum = 0;
  for (uint i = lane; i < size; i += 32) top = max(top, in[row * size + i]);
  top = simd_max(top);
  for (uint i = lane; i < size; i += 32) sum += exp(in[row * size + i] - top);
  const float scale = 1.0 / simd_sum(sum);
  for (uint i = lane; i < size; i += 32) out[row * size + i] = exp(in[row * size + i] - top) * scale;
}
kernel void turned(device float* out, constant float* in, constant uint& size, uint i [[thread_position_in_grid]],
                   uint lane [[thread_index_in_threadgroup]]) {
  if (i >= size) return;
  float mine = in[i];
  mine += simd_shuffle_xor(mine, 1) * simd_sum(mine);
  threadgroup float all[1024];
  all[lane] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = all[lane ^ 1] + simd_prefix_inclusive_sum(mine);
}
"""
)


@pytest.mark.parametrize("size", [7, 32, 100, 640])
def test_bodies_of_people(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Values that change across cuts, SIMD calls within expressions, barriers, threads that return early."""
    x = torch.randn(6, size)
    grids = {
        "norm": {"threads": (6, size), "group_size": (1, size)},
        "softmax": {"threads": 6 * 32, "group_size": 32},
        "turned": {"threads": 6 * size + 9, "group_size": 256},
    }
    for name, grid in grids.items():
        kernels, end = forms(monkeypatch, BODIES, name), 6 * size if name == "turned" else size
        written = written_by_both(kernels, (6, size), x.to("mps"), end, **grid)
        if name == "softmax":
            torch.testing.assert_close(written, x.softmax(1))
        if name == "norm":
            torch.testing.assert_close(written, torch.nn.functional.layer_norm(x, (size,)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sum", "product", "min", "max"])
def test_lanes_with_nan_and_zeros_of_both_signs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whole SIMD groups are done in registers, partial ones lane by lane: the bits are those of fibers."""
    kernels = forms(
        monkeypatch,
        HEAD
        + f"""
kernel void together(device float* out, constant float* in, uint i [[thread_position_in_grid]]) {{
  const float mine = in[i];
  out[i] = simd_{name}(mine);
}}""",
        "together",
    )
    x = torch.randn(6, 48)
    x[0], x[1] = 0.0, -0.0
    x[2, 1::2], x[3, ::2] = -0.0, 0.0
    x[4, 5], x[5, 30:40] = torch.nan, torch.nan
    written_by_both(kernels, (6, 48), x.to("mps"), group_size=48)


def test_a_signed_overflow_wraps() -> None:
    """As on a GPU, in loops too."""
    library = torch.mps.compile_shader(
        HEAD
        + """
kernel void hash(device int* x, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < 3; ++n) x[i] = x[i] * 1664525 + 1013904223;
}
"""
    )
    x = torch.arange(100, dtype=torch.int32)
    found = x.to("mps")
    library.hash(found)
    for _ in range(3):
        x = x * 1664525 + 1013904223
    assert torch.equal(found.cpu(), x)


def test_what_all_threads_of_a_group_change_changes_once() -> None:
    """A mean that every thread reads and writes in place, as Inductor has it: lanes read before one of them writes."""
    library = torch.mps.compile_shader(
        TORCH
        + """
kernel void update(device float* mean, constant float* before, constant float* in,
                   uint2 at [[thread_position_in_grid]]) {
  auto r = at.y;
  int x = at.x;
  threadgroup float shared[32];
  auto tmp0 = in[r + 64 * x];
  auto tmp1 = c10::metal::threadgroup_sum(shared, tmp0, r * 1, 64);
  auto tmp2 = before[x];
  auto tmp3 = tmp2 * 0.5 + tmp1;
  mean[x] = tmp3;
}
"""
    )
    mean = torch.tensor([2.0, 4.0, 8.0], device="mps")
    library.update(mean, mean, torch.ones(3, 64, device="mps"), threads=(3, 64), group_size=(1, 64))
    assert mean.tolist() == [65.0, 66.0, 68.0]


def test_many_groups_along_all_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes several at once: each is in its place, the smaller ones at the edge too."""
    source = (
        HEAD
        + """
kernel void places(device int* out, uint3 group [[threadgroup_position_in_grid]],
                   uint3 groups [[threadgroups_per_grid]], uint3 size [[threads_per_threadgroup]],
                   uint i [[thread_index_in_threadgroup]]) {
  threadgroup int seen[32];
  seen[i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int last = seen[size.x - 1];
  out[32 * (group.x + groups.x * (group.y + groups.y * group.z)) + i] =
    1000000 * last + 10000 * group.x + 100 * group.y + group.z;
}"""
    )
    threads = torch.get_num_threads()
    for kernel in forms(monkeypatch, source, "places"):
        for workers in (1, 2):
            out = torch.zeros(17, 13, 11, 32, dtype=torch.int32, device="mps")
            try:
                torch.set_num_threads(workers)
                kernel(out, threads=(32 * 10 + 5, 13, 17), group_size=(32, 1, 1))
            finally:
                torch.set_num_threads(threads)
            z, y, x = (torch.arange(n, dtype=torch.int32) for n in (17, 13, 11))
            places = 10000 * x + 100 * y[:, None] + z[:, None, None]
            found = out.cpu()
            assert found[:, :, :10].equal((31000000 + places[:, :, :10, None]).expand(17, 13, 10, 32))
            assert found[:, :, 10, :5].equal((4000000 + places[:, :, 10, None]).expand(17, 13, 5))
            assert not found[:, :, 10, 5:].any()


def test_a_group_along_three_axes_runs_as_fibers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops are along x and y; a launch that has another shape is right, too."""
    monkeypatch.delenv("ANYMPS_METAL_FIBERS", raising=False)
    library = torch.mps.compile_shader(
        HEAD
        + """
kernel void place(device float* out, uint2 at [[thread_position_in_grid]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float all[64];
  all[i] = at.x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[at.x + 8 * at.y] = all[63 - i];
}
"""
    )
    out = torch.zeros(8, 8, device="mps")
    library.place(out, threads=(8, 8), group_size=(8, 8))
    assert out.cpu().equal(torch.arange(7, -1, -1.0).expand(8, 8))
    assert library.place._entry.form == GROUPS
    library.place(out, threads=(8, 4, 2), group_size=(8, 4, 2))
    assert out[:4].cpu().equal(torch.arange(7, -1, -1.0).expand(4, 8))
    assert library.place._entry.form == FIBERS


LONG_ROWS = """
kernel void long_rows(device float* out, constant float* in, uint2 thread_pos [[thread_position_in_grid]],
                      uint2 group_pos [[thread_position_in_threadgroup]]) {
  auto xindex = thread_pos.x;
  auto r0_index = thread_pos.y;
  int x0 = xindex;
  threadgroup float shared_0[32];
  threadgroup float shared_1[32];
  float top = ::c10::metal::MaxOp<float>::identity();
  float low = ::c10::metal::MinOp<float>::identity();
  for (auto r0__cnt = 0; r0__cnt < 4; ++r0__cnt) {
    int r0__linear_idx = 4 * r0_index + r0__cnt;
    int r0_1 = r0__linear_idx;
    auto tmp0 = in[r0_1 + 400 * x0];
    top = ::c10::metal::max(top, static_cast<float>(tmp0));
    low = ::c10::metal::min(low, static_cast<float>(tmp0));
  }
  auto tmp1 = c10::metal::threadgroup_max(shared_0, top, r0_index * 1, 100);
  auto tmp2 = c10::metal::threadgroup_min(shared_1, low, r0_index * 1, 100);
  for (auto r0__cnt = 0; r0__cnt < 4; ++r0__cnt) {
    int r0__linear_idx = 4 * r0_index + r0__cnt;
    out[r0__linear_idx + 400 * x0] = (in[r0__linear_idx + 400 * x0] - tmp1) + tmp2;
  }
}
"""


@pytest.mark.skipif(
    installed_torch().version.release < (2, 13), reason="torch's headers have MaxOp and MinOp since 2.13"
)
def test_more_elements_than_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread takes four elements; a NaN spreads, of zeros of both signs the first is taken."""
    kernels = forms(monkeypatch, TORCH + LONG_ROWS, "long_rows")
    x = torch.randn(6, 400)
    x[1, 17], x[2], x[3] = torch.nan, 0.0, -0.0
    x[2, 1::2], x[3, 1::2] = -0.0, 0.0
    written = written_by_both(kernels, (6, 400), x.to("mps"), threads=(6, 100), group_size=(1, 100))
    expected = x - x.amax(1, keepdim=True) + x.amin(1, keepdim=True)
    torch.testing.assert_close(written, expected, equal_nan=True)


MOMENTS = """
kernel void elements(device float* out, constant float* in, constant long* lengths,
                     uint2 thread_pos [[thread_position_in_grid]]) {
  auto r0_index = thread_pos.y;
  int x0 = thread_pos.x;
  threadgroup float shared[64];
  shared[r0_index * 1] = in[r0_index + 64 * x0];
  auto found = c10::metal::threadgroup_welford_reduce(shared, lengths[x0]);
  threadgroup long sums[32];
  long whole = r0_index;
  auto all = c10::metal::threadgroup_sum(sums, whole, r0_index * 1, 64);
  out[r0_index + 64 * x0] = found.x + found.y * r0_index + found.z * all;
}
kernel void parts(device float* out, constant float* in, constant long* lengths,
                  uint2 thread_pos [[thread_position_in_grid]]) {
  auto r0_index = thread_pos.y;
  int x0 = thread_pos.x;
  threadgroup float3 shared[64];
  shared[r0_index * 1] = float3(in[r0_index + 64 * x0], in[r0_index * 63 % 64], r0_index % 3);
  auto found = c10::metal::threadgroup_welford_combine(shared, lengths[x0]);
  float value = r0_index % 3 == 0 ? found.x : r0_index % 3 == 1 ? found.y : found.z;
  out[r0_index + 64 * x0] = value;
}
"""


@pytest.mark.parametrize("name", ["elements", "parts"])
def test_moments_of_rows_side_by_side(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Groups share vectors: any number of them, rows of different lengths, other calls in between, on two threads."""
    if name == "elements" and installed_torch().version.release >= (2, 15):
        pytest.skip("torch 2.15 has no threadgroup_welford_reduce: a thread's own elements come as a part, too")
    loops, fibers = forms(monkeypatch, TORCH + MOMENTS, name)
    assert loops._entry.together and not fibers._entry.together
    threads = torch.get_num_threads()
    for rows, workers in ((1, 1), (5, 1), (16, 1), (37, 1), (700, 2)):
        x, lengths = torch.randn(rows, 64), torch.full((rows,), 64)
        lengths[1::2] = torch.arange(1, rows, 2) % 64 + 1
        x[0, 3] = torch.nan if rows > 5 else 0.5
        grid = {"threads": (rows, 64), "group_size": (1, 64)}
        try:
            torch.set_num_threads(workers)
            written_by_both((loops, fibers), (rows, 64), x.to("mps"), lengths.to("mps"), **grid)
        finally:
            torch.set_num_threads(threads)


def test_a_fault_of_groups_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the kernel and not the process, and the next launch is right."""
    loops, _ = forms(monkeypatch, TORCH + MOMENTS, "elements")
    x, lengths = torch.ones(20, 64, device="mps"), torch.full((20,), 64, device="mps")
    out = torch.zeros(20, 64, device="mps")
    with pytest.raises(RuntimeError, match="the Metal kernel 'elements' read or wrote memory that does not exist"):
        loops(out, x, threads=(20, 64), group_size=(1, 64))
    loops(out, x, lengths, threads=(20, 64), group_size=(1, 64))
    assert out.tolist() == [[1.0 + 64 * 2016] * 64] * 20
