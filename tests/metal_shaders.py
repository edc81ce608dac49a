"""Metal sources that several test files share, so that a session compiles each once."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

BASICS = (
    HEAD
    + """
kernel void saxpy(device float* y, constant float* x, constant float& a, uint i [[thread_position_in_grid]]) {
  y[i] += a * x[i];
}
kernel void places(device uint* out, uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_grid]],
                   uint3 l [[thread_position_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]],
                   uint3 s [[threads_per_threadgroup]], ushort3 d [[dispatch_threads_per_threadgroup]],
                   uint3 gs [[threadgroups_per_grid]], uint i [[thread_index_in_threadgroup]]) {
  const uint at = (p.x + n.x * (p.y + n.y * p.z)) * 8;
  out[at] = l.x + 100 * l.y + 10000 * l.z;
  out[at + 1] = g.x + 100 * g.y + 10000 * g.z;
  out[at + 2] = s.x * s.y * s.z;
  out[at + 3] = d.x * d.y * d.z;
  out[at + 4] = gs.x + 100 * gs.y + 10000 * gs.z;
  out[at + 5] = i;
}
template <typename T, typename I>
kernel void count(device T* out, I i [[thread_position_in_grid]]) {
  out[i] = i;
}
template [[host_name("count_float")]] kernel void count<float>(device float*, uint);
template [[host_name("count_half")]] [[kernel]] void count<half, ushort>(device half*, ushort);
template [[host_name("count_long")]] kernel decltype(count<long, uint>) count<long, uint>;
struct Body { float2 place; packed_float3 color; int kind; };
kernel void move(device Body* bodies [[buffer(1)]], constant Body& by [[buffer(0)]],
                 uint i [[thread_position_in_grid]]) {
  bodies[i].place += by.place;
  bodies[i].color = bodies[i].color.zyx * 2.0;
  bodies[i].kind -= by.kind;
}
struct Many { device float* parts[3]; };
kernel void gather(device float* out, constant Many& in, uint i [[thread_position_in_grid]]) {
  out[i] = in.parts[i % 3][i / 3];
}
kernel void swizzles(device float4* v, uint i [[thread_position_in_grid]]) {
  float4 a = v[i];
  a.xy = a.zw + 0.5;
  a.w *= 2;
  v[i] = a.wzyx.rgba;
}
kernel void constants(device long* out, constant long& a, constant float& b, constant long* c, constant float* d,
                      constant short& e) {
  out[0] = a; out[1] = long(b * 4); out[2] = c[0] + c[1]; out[3] = long(d[1] * 4); out[4] = e;
}
kernel void [[max_total_threads_per_threadgroup(64)]] few(device float* x) { x[0] = 1.0h; }
"""
)

GROUPS = (
    HEAD
    + """
constant constexpr uint TILE = 8;
kernel void matmul(device float* c, constant float* a, constant float* b, constant uint3& size,
                   uint2 p [[thread_position_in_grid]], uint2 l [[thread_position_in_threadgroup]]) {
  threadgroup float left[TILE][TILE], right[TILE][TILE];
  float sum = 0.0;
  for (uint k = 0; k < size.z; k += TILE) {
    left[l.y][l.x] = p.y < size.y && k + l.x < size.z ? a[p.y * size.z + k + l.x] : 0.0;
    right[l.y][l.x] = p.x < size.x && k + l.y < size.z ? b[(k + l.y) * size.x + p.x] : 0.0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < TILE; ++i) sum += left[l.y][i] * right[i][l.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (p.x < size.x && p.y < size.y) c[p.y * size.x + p.x] = sum;
}
template <typename T>
[[kernel]] void tree(device T* out, device const T* in, constant uint& count, uint i [[thread_position_in_grid]],
                     uint l [[thread_index_in_threadgroup]], uint n [[dispatch_threads_per_threadgroup]],
                     uint g [[threadgroup_position_in_grid]]) {
  threadgroup T parts[1024];
  parts[l] = i < count ? in[i] : T(0);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = n / 2; step > 0; step /= 2) {
    if (l < step) parts[l] += parts[l + step];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (l == 0) out[g] = parts[0];
}
template [[host_name("tree_float")]] [[kernel]] void
tree<float>(device float*, device const float*, constant uint&, uint, uint, uint, uint);
template [[host_name("tree_int")]] [[kernel]] void
tree<int>(device int*, device const int*, constant uint&, uint, uint, uint, uint);
kernel void softmax(device float* out, constant float* in, constant uint& width,
                    uint row [[threadgroup_position_in_grid]],
                    uint l [[thread_index_in_simdgroup]]) {
  float top = -INFINITY;
  for (uint i = l; i < width; i += 32) top = max(top, in[row * width + i]);
  top = simd_max(top);
  float sum = 0;
  for (uint i = l; i < width; i += 32) sum += exp(in[row * width + i] - top);
  sum = simd_sum(sum);
  for (uint i = l; i < width; i += 32) out[row * width + i] = exp(in[row * width + i] - top) / sum;
}
kernel void product8(device float* d, constant float* a, constant float* b) {
  simdgroup_float8x8 left, right, sum = make_filled_simdgroup_matrix<float, 8, 8>(1.0);
  simdgroup_load(left, a, 8);
  simdgroup_load(right, b, 8, ulong2(0, 0), true);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, d, 8);
}
kernel void histogram(device atomic_uint* bins, constant int* values, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&bins[values[i]], 1, memory_order_relaxed);
}
kernel void extremes(device atomic_int* out, device atomic<float>* sum, constant int* values,
                     uint i [[thread_position_in_grid]]) {
  atomic_fetch_min_explicit(&out[0], values[i], memory_order_relaxed);
  atomic_fetch_max_explicit(&out[1], values[i], memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 0.5, memory_order_relaxed);
}
kernel void leaves_early(device int* out, constant int& count, uint i [[thread_index_in_threadgroup]]) {
  threadgroup int seen[64];
  seen[i] = int(i);
  if (int(i) >= count) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = seen[(i + 1) % uint(count)];
}
kernel void lanes(device int* out, uint i [[thread_index_in_threadgroup]]) {
  const int v = int(i);
  device int* at = out + i * 16;
  at[0] = simd_shuffle_down(v, 1);
  at[1] = simd_shuffle_up(v, 2);
  at[2] = simd_shuffle_xor(v, 5);
  at[3] = simd_broadcast(v, 7);
  at[4] = simd_prefix_inclusive_sum(v);
  at[5] = simd_prefix_exclusive_sum(v);
  at[6] = quad_sum(v);
  at[7] = quad_shuffle_xor(v, 1);
  at[8] = simd_all(v < 40) ? 1 : 0;
  at[9] = int(ulong(simd_ballot(v % 2 == 0)) & 0xff);
  at[10] = simd_shuffle_and_fill_down(v, -1, 3);
  at[11] = simd_min(v) + simd_max(v);
  if (i % 3 == 0) at[12] = simd_sum(1);
  else at[12] = -simd_sum(1);
  at[13] = simd_sum(1);
}
"""
)


@cache
def library(source: str) -> Any:
    """The compiled source, once a session."""
    return torch.mps.compile_shader(source)
