"""Bodies with elements and references of a thread's own run as loops, others as fibers, and both give the same."""

from __future__ import annotations

import pytest
import torch

from anymps.metal.translation._rewrite import translate
from metal.forms import FIBERS, GROUPS, TORCH, forms
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")
POSITION = "uint i [[thread_position_in_grid]]"
OWN_ELEMENTS = (
    HEAD
    + """
kernel void held(device float* out, constant float* a, ROW) {
  threadgroup float3 parts[64];
  parts[l] = 0.0;
  for (uint k = 0; k < 4; ++k) {
    parts[l] = parts[l] + float3(a[4 * i + k], parts[l].x * parts[l].y, 1.0);
    if (parts[l].x > 1) parts[l].y -= 1;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float3 other = parts[(l + 1) % n];
  out[i] = other.x - other.y * other.z;
}
kernel void pointed(device float* out, constant float* a, ROW) {
  threadgroup float parts[64];
  threadgroup float* p = parts;
  parts[l] = 0.0;
  for (uint k = 0; k < 4; ++k) { parts[l] += a[4 * i + k]; p[l] *= 1.5; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = parts[(l + 1) % n];
}
kernel void read_by_pointer(device float* out, constant float* a, ROW) {
  threadgroup float parts[64];
  threadgroup float* p = parts;
  parts[l] = 0.0;
  float sum = 0;
  for (uint k = 0; k < 4; ++k) { parts[l] += a[4 * i + k]; sum += p[l]; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = parts[(l + 1) % n] + sum;
}
kernel void referred(device float* out, constant float* a, ROW) {
  threadgroup float parts[64];
  parts[l] = 0.0;
  for (uint k = 0; k < 4; ++k) { threadgroup float& own = parts[l]; parts[l] += a[4 * i + k]; own *= 1.5; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = parts[(l + 1) % n];
}
kernel void covered(device float* out, constant float* a, ROW) {
  threadgroup float parts[64];
  parts[l] = 0.0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 0; k < 4; ++k) { const uint m = n - 1 - l; { uint l = m; parts[l] += a[4 * i + k]; } }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = parts[l];
}
""".replace("ROW", "uint l [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]], " + POSITION)
)


@pytest.mark.parametrize("name", ["held", "pointed", "read_by_pointer", "referred", "covered"])
def test_elements_that_threads_have_for_themselves(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They are held in variables, but where a pointer, a reference or another variable leads to the memory."""
    kernel = next(kernel for kernel in translate(OWN_ELEMENTS, set(), loops=True).kernels if kernel.name == name)
    assert kernel.group is not None and ("anymps_own_" in kernel.group.text) == (name == "held")
    loops, fibers = forms(monkeypatch, OWN_ELEMENTS, name)
    a = torch.randn(4 * 192, device="mps")
    results = [torch.zeros(192, device="mps") for _ in range(2)]
    for kernel, out in zip((loops, fibers), results, strict=True):
        kernel(out, a, threads=192, group_size=64)
    assert results[0].cpu().view(torch.int32).equal(results[1].cpu().view(torch.int32))
    assert results[0].cpu().count_nonzero() == 192


def test_groups_beside_each_other_along_y(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops along y alone are for one group, as Inductor has it: where c10 is used, more of them run as fibers."""
    monkeypatch.delenv("ANYMPS_METAL_FIBERS", raising=False)
    library = torch.mps.compile_shader(
        HEAD
        + TORCH
        + """
kernel void mirror(device int* out, uint2 at [[thread_position_in_grid]],
                   uint2 own [[thread_position_in_threadgroup]]) {
  threadgroup int all[32];
  all[own.y] = at.y;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[at.y + 96 * at.x] = all[31 - own.y];
}
kernel void mirror_c10(device int* out, uint2 at [[thread_position_in_grid]],
                       uint2 own [[thread_position_in_threadgroup]]) {
  threadgroup int all[32];
  all[own.y] = c10::metal::max(int(at.y), 0);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[at.y + 96 * at.x] = all[31 - own.y];
}
"""
    )
    out = torch.zeros(2, 96, dtype=torch.int32, device="mps")
    for kernel, form in ((library.mirror, GROUPS), (library.mirror_c10, FIBERS)):
        kernel(out.zero_(), threads=(2, 96), group_size=(1, 32))
        assert out.cpu().equal(torch.arange(96).view(3, 32).flip(1).view(96).expand(2, 96).int())
        assert kernel._entry.form == form


def test_bodies_that_need_fibers() -> None:
    """Loops that are not as long for all, own functions that synchronise, addresses of a thread's variables."""
    library = torch.mps.compile_shader(
        HEAD
        + """
float all(float x) { return simd_sum(x); }
void skip(thread int& n) { n += n < 1; }
kernel void in_a_loop(device float* out, uint i [[thread_position_in_grid]]) {
  for (uint n = 0; n < i / 32 + 2; ++n) out[i] = simd_sum(out[i]);
}
kernel void by_memory(device float* out, device int& count, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < count; ++n) out[i] = simd_sum(out[i]);
}
kernel void by_reference(device float* out, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < 3; ++n) { out[i] = simd_sum(out[i]); skip(n); }
}
kernel void left_early(device float* out, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < 3; ++n) { if (out[i] > 500) break; out[i] = simd_sum(out[i]); }
}
kernel void skipped(device float* out, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < 3; ++n) { if (out[i] > 500) continue; out[i] = simd_sum(out[i]); }
}
kernel void in_a_function(device float* out, uint i [[thread_position_in_grid]]) { out[i] = all(out[i]); }
kernel void by_address(device float* out, uint i [[thread_position_in_grid]]) {
  float own = out[i];
  thread float* to = &own;
  threadgroup_barrier(mem_flags::mem_none);
  *to += 1;
  out[i] = *to;
}
kernel void of_an_array(device float* out, uint i [[thread_position_in_grid]]) {
  float many[2] = {0, 1};
  thread float* to = many;
  threadgroup_barrier(mem_flags::mem_none);
  out[i] += to[1];
}
kernel void in_a_branch(device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = i < 16 ? simd_sum(out[i]) : 0;
}
"""
    )
    for name, expected in (
        ("in_a_loop", 32 * 32),
        ("by_memory", 32 * 32),
        ("by_reference", 32 * 32),
        ("left_early", 32 * 32),
        ("skipped", 32 * 32),
        ("in_a_function", 32),
        ("in_a_branch", 16),
        ("by_address", 2),
        ("of_an_array", 2),
    ):
        out = torch.ones(32, device="mps")
        more = [torch.full((1,), 2, dtype=torch.int32, device="mps")] if name == "by_memory" else []
        getattr(library, name)(out, *more)
        assert out[0].item() == expected
        assert getattr(library, name)._entry.form == FIBERS


@pytest.mark.parametrize(
    "reference",
    ["thread float& y = r;", "thread float& y{r};", "thread float& y(r);", "auto& y = r;", "thread float& y = (r);"],
)
def test_what_changes_by_a_reference_is_each_threads_own(monkeypatch: pytest.MonkeyPatch, reference: str) -> None:
    """A variable that all threads begin with the same value is not one for the group."""
    source = f"""{HEAD}
    kernel void adds(device float* o, constant float* x, uint i [[thread_index_in_threadgroup]]) {{
      threadgroup float t[64];
      float r = 1.0f;
      t[i] = x[i];
      threadgroup_barrier(mem_flags::mem_threadgroup);
      {{ {reference} y += t[63 - i]; }}
      o[i] = r;
    }}"""
    x = torch.arange(64.0)
    for kernel in forms(monkeypatch, source, "adds"):
        out = torch.zeros(64, device="mps")
        kernel(out, x.to("mps"), threads=64, group_size=64)
        assert out.tolist() == (1 + x.flip(0)).tolist()
