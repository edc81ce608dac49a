"""Bodies with references to variables of a thread's own run as loops, others as fibers, and both give the same."""

from __future__ import annotations

import pytest
import torch

from metal.forms import FIBERS, GROUPS, TORCH
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")


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
kernel void left_within(device float* out, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < 3; ++n) { out[i] = simd_sum(out[i]); while (out[i] > 500) { out[i] = 1024; break; } }
}
kernel void in_a_function(device float* out, uint i [[thread_position_in_grid]]) { out[i] = all(out[i]); }
kernel void in_an_argument(device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = simd_sum(simd_max(out[i]));
}
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
        ("left_within", 1024),
        ("in_a_function", 32),
        ("in_an_argument", 32),
        ("in_a_branch", 16),
        ("by_address", 2),
        ("of_an_array", 2),
    ):
        out = torch.ones(32, device="mps")
        more = [torch.full((1,), 2, dtype=torch.int32, device="mps")] if name == "by_memory" else []
        getattr(library, name)(out, *more)
        assert out[0].item() == expected
        assert getattr(library, name)._entry.form == FIBERS


CHANGES = {  # by name: what of the program's own it uses, what stands before the barrier, and what behind it
    "by_call": ("", "int n = 0;", "bump(n, t[63 - i]); out[i] = n;"),
    "by_pointer": ("", "int n = 0;", "at(&n, t[63 - i]); out[i] = n;"),
    "by_a_reference": ("", "int n = 0;", "thread int& y = n; y += t[63 - i]; out[i] = n;"),
    "by_a_reference_in_braces": ("", "int n = 0;", "thread int& y{n}; y += t[63 - i]; out[i] = n;"),
    "by_a_reference_in_brackets": ("", "int n = 0;", "thread int& y(n); y += t[63 - i]; out[i] = n;"),
    "by_a_reference_to_brackets": ("", "int n = 0;", "thread int& y = (n); y += t[63 - i]; out[i] = n;"),
    "by_a_deduced_reference": ("", "int n = 0;", "auto& y = n; y += t[63 - i]; out[i] = n;"),
    "by_two_calls": ("", "int n = 0;", "nested(n, t[63 - i]); out[i] = n;"),
    "by_metal": ("", "float c = 0; int e = 1;", "out[i] = int(sincos(float(t[63 - i]), c) * 0 + c * 1000) + e;"),
    "by_frexp": ("", "int e = 1;", "out[i] = int(frexp(float(t[63 - i]), e) * 64) + e;"),
    "of_a_struct": ("", "Pair s = {0, 1};", "bump(s.b, t[63 - i]); out[i] = s.a + s.b;"),
    "of_a_vector": ("", "int2 v = int2(0, 1);", "step(v, t[63 - i]); out[i] = v.x + v.y;"),
    "by_a_method": ("", "Count s = {0};", "s.add(t[63 - i]); out[i] = s.n;"),
    "by_a_constructor": ("", "int n = 0;", "Adds adds(n, t[63 - i]); out[i] = n + adds.unused;"),
    "by_an_operator": ("", "Count s = {0};", "s << t[63 - i]; out[i] = s.n;"),
    "by_a_template": ("", "int n = 0;", "any_bump(n, t[63 - i]); out[i] = n;"),
    "by_an_overload": ("", "int n = 0;", "out[i] = either(n, t[63 - i]) + n;"),
    "of_an_index": ("uint j = i + 1;", "", "any_bump(j, uint(t[63 - i])); out[i] = int(j);"),
    "of_a_buffer": ("", "", "device int* p = out; forth(p, i); *p = t[63 - i];"),
    "of_a_parameter": ("", "", "forth(out, i); *out = t[63 - i];"),
    "of_an_address": ("int n = 1;", "thread int* p = &n;", "*p += t[63 - i]; out[i] = n;"),
    "of_a_returned_address": ("int n = t[i];", "auto p = where(n);", "*p += t[63 - i]; out[i] = *p;"),
    "of_a_held_address": ("int n = t[i]; Holder h; h.p = &n;", "", "*h.p += t[63 - i]; out[i] = *h.p;"),
    "of_a_made_holder": ("int n = t[i]; auto h = hold(n);", "", "*h.p += t[63 - i]; out[i] = *h.p;"),
    "of_a_kept_holder": ("int n = t[i]; Holder h; keep(h, n);", "", "*h.p += t[63 - i]; out[i] = *h.p;"),
    "of_an_index_s_address": ("auto p = &i;", "", "out[i] = t[63 - *p];"),
    "of_an_index_s_holder": ("auto p = where_of(i);", "", "out[i] = t[63 - *p];"),
}
OWN = """
struct Pair { int a, b; };
struct Count { int n; void add(int x) { n += x; } };
struct Adds { int unused; Adds(thread int& n, int x) : unused(0) { n += x; } };
struct Holder { thread int* p; };
void operator<<(thread Count& s, int x) { s.n += x; }
void bump(thread int& n, int x) { n += x; }
void at(thread int* n, int x) { *n += x; }
void nested(thread int& n, int x) { bump(n, x); at(&n, 0); }
void step(thread int2& v, int x) { v.y += x; }
void forth(device int* thread& p, uint i) { p += i; }
template <typename T> void any_bump(thread T& n, T x) { n += x; }
int either(thread int& n, int x) { n += x; return 1; }
int either(const thread int& n, int x) { return 5; }
thread int* where(thread int& n) { return &n; }
const thread uint* where_of(const thread uint& n) { return &n; }
Holder hold(thread int& n) { return Holder{&n}; }
void keep(thread Holder& h, thread int& n) { h.p = &n; }
"""


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_call_changes_is_each_threads_own(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Variables that calls change or lead to, behind a barrier: what loops compute is what fibers compute."""
    first, between, behind = CHANGES[name]
    source = f"""{HEAD}{OWN}
    kernel void changes(device int* out, device const int* x, uint i [[thread_position_in_grid]]) {{
      threadgroup int t[64];
      t[i] = x[i];
      {first}
      {between}
      threadgroup_barrier(mem_flags::mem_threadgroup);
      {behind}
    }}"""
    results = []
    for value in ("", "1"):
        monkeypatch.setenv("ANYMPS_METAL_FIBERS", value)
        kernel = torch.mps.compile_shader(source).changes
        out = torch.zeros(64, dtype=torch.int32, device="mps")
        kernel(out, torch.arange(1, 65, dtype=torch.int32, device="mps"), threads=64, group_size=64)
        results.append(out.tolist())
    assert results[0] == results[1]
