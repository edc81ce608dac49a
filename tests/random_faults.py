"""Random Metal kernels that data can lead astray: each carries numbers from buffers to where they decide something.

With zeros as data most of them touch what they may; with other numbers they read and write beside their memory, race,
leave a barrier early, divide by zero, shift too far, or take lanes that are not there. In some of them the data decides
nothing, though it looks much the same.
"""

from __future__ import annotations

from collections.abc import Callable

Draw = Callable[[int, int], int]  # a number from the first to the last, both included

THREADS = 64
HEAD = """#include <metal_stdlib>
using namespace metal;
struct Pair { int a, b; };
constant int TABLE[4] = {0, 1, 0, 2};
#define LOAD(I) d[I]
static int same(int v) { return v; }
static int positive(int v) { if (v > 0) return 1; return 0; }
static int nothing(int v) { int kept = v; kept = 0; return kept; }
static void into(thread int& to, int v) { to = v; }
static void both(thread int& a, thread int& b, int v) { b = v; a = b; }
static void store(device float* p, float v) { *p = v; }
static void store_if(device float* p, int v) { if (v > 0) p[64] = 1; }
static float load(device const float& p) { return p; }
static int at(device const int* from, uint i) { return from[i]; }
static int at(constant int* from, uint i) { return from[i]; }
template <typename T> T twice(T v) { return v + v; }
static int read_second(int v) { int two[2] = {0, v}; return two[1]; }
static float beside(float v, int k) { float four[4] = {v, v, v, v}; return four[k * 9]; }
"""
_KERNEL = """kernel void k{number}(device float* o, {space} int* d, device float* x, constant int& n,
    device atomic_int* c, uint i [[thread_index_in_threadgroup]], uint s [[threads_per_threadgroup]]) {{
  threadgroup int t[65];
  threadgroup int one;
  float r = 1.0f;
  int k = 0, m = 0;
{body}  o[i] = r;
}}
"""
_SPACES = ("device", "device const", "constant")
# Numbers from `d` or `x` into `k`; or what looks like that.
_WAYS = (
    "k = d[i];",
    "k = int(x[i]);",
    "k = n;",
    "k = int(s) - 64;",
    "k = *(d + i);",
    "auto p = d + i; k = *p;",
    "auto p = d; k = p[i];",
    "const auto q = d[i]; k = q;",
    "int q{d[i]}; k = q;",
    "int q(d[i]); k = q;",
    "k += d[i] + 0;",
    "m = d[i]; k = m;",
    "if (d[i] > 0) k = 1;",
    "if (d[i] > 0) { m = 1; } else { m = 0; } k = m;",
    "k = d[i] > 0 ? 1 : 0;",
    "k = !d[i] ? 0 : 1;",
    "k = d[i] && n == 0;",
    "for (int j = 0; j < d[i]; ++j) ++k;",
    "while (k < d[i]) k++;",
    "do { ++k; } while (k < d[i]); k -= 1;",
    "for (int j = 0; j < 3; ++j) { if (j > 0 && d[i] == 0) break; k = j; }",
    "for (int j = 0; j < 3; ++j) { if (d[i] == 0) continue; k = j; }",
    "switch (d[i]) { case 0: k = 0; break; default: k = 1; }",
    "int a[2] = {0, 0}; a[1] = d[i]; k = a[1];",
    "int a[2] = {0, d[i]}; auto b = a; k = b[1];",
    "int a[2] = {0, 0}; thread int* b = a; b[1] = d[i]; k = a[1];",
    "int a[2] = {0, 0}; auto b = a; b[1] = d[i]; k = a[1];",
    "thread int& to = k; to = d[i];",
    "thread int* to = &k; *to = d[i];",
    "auto& to = k; to = d[i];",
    "into(k, d[i]);",
    "both(k, m, d[i]);",
    "both(m, k, d[i]);",
    "both(m, m, d[i]); k = m;",
    "auto& to = m; to = d[i]; k = m;",
    "auto& to = m; m = d[i]; k = to;",
    "thread int& a = k; thread int& b = a; b = d[i];",
    "int2 v = int2(0, 0); thread int& to = v.x; to = d[i]; k = v.x;",
    "device float& e = o[i]; e = float(d[i]); k = int(o[i]);",
    "k = at(d + i, 0);",
    "into(k, at(d, i));",
    "if (d[i] > 0) into(k, 1);",
    "k = int(load(x[i]));",
    "store(o + i, float(d[i])); k = int(o[i]);",
    "k = same(d[i]);",
    "k = positive(d[i]);",
    "k = nothing(d[i]);",
    "k = read_second(d[i]);",
    "k = at(d, i);",
    "k = twice(d[i]);",
    "k = twice<int>(d[i]);",
    "k = LOAD(i);",
    "t[i] = d[i]; k = t[i];",
    "threadgroup int* u = t + i; *u = d[i]; k = t[i];",
    "if (i == 0) one = d[0]; threadgroup_barrier(mem_flags::mem_threadgroup); k = one; "
    "threadgroup_barrier(mem_flags::mem_threadgroup);",
    "o[i] = float(d[i]); k = int(o[i]);",
    "device float* e = o + i; *e = float(d[i]); k = int(o[i]);",
    "k = ((device const int*)x)[i];",
    "k = int(as_type<uint>(x[i]));",
    "int2 v = int2(0, 0); v.y = d[i]; k = v.x + v.y;",
    "int2 v = int2(d[i], 0); k = v[0];",
    "Pair v; v.a = d[i]; v.b = 0; k = v.a;",
    "Pair v = {d[i], 0}; k = v.a;",
    "Pair v = Pair{0, 0}; v.a = d[i]; k = v.b;",
    "k = simd_max(d[i]);",
    "k = simd_sum(d[i] - d[i]);",
    "k = atomic_load_explicit(&c[i], memory_order_relaxed);",
    "k = atomic_fetch_add_explicit(&c[i], d[i], memory_order_relaxed);",
    "k = (m, d[i]);",
    "{ int k = d[i]; m = k; } k = 0;",
    "{ int k = d[i]; m = k; } k = m;",
    "auto f = [&](uint z) { return d[z]; }; k = f(i);",
    "k = TABLE[d[i] & 3];",
    "k = TABLE[i % 1];",
    "k = max(d[i], 0);",
    "k = int(exp(float(d[i]))) - 1;",
    "k = d[i] * 0;",
    "k = d[0];",
    "m = k = d[i];",
    "k = d[i] - d[i];",
    "k = int(x[i] > 0.5f);",
)
# Where `k` decides.
_DECISIONS = (
    "r += x[i + k * 64];",
    "r += float(d[int(i) + k * 64]);",
    "r += *(x + i + k * 64);",
    "device float* y = x; y += k * 64; r += *y;",
    "device const float* y = x + k * 64; r += y[i];",
    "auto y = x + k * 64; r += y[i];",
    "r += (k > 0 ? x + 64 : x)[i];",
    "r += k > 0 ? x[i + 64] : x[i];",
    "if (k > 0) r += x[i + 64];",
    "if (k > 0) { r += 1; } else if (k < 0) { r += x[i + 64]; }",
    "bool far = k > 0 && x[i + 64] > 0; r += far;",
    "bool far = k == 0 || x[i + 64] > 0; r += far;",
    "switch (k) { case 0: break; default: r += x[i + 64]; }",
    "for (int j = 0; j < 1 + min(k, 9) * 64; ++j) r += x[j];",
    "for (int j = 0; j < 70; ++j) { if (j >= 64 && k == 0) break; r += x[j]; }",
    "for (int j = 0; j < 70; ++j) { if (j >= 64 - k) continue; r += x[j]; } if (k) r += x[70];",
    "int j = 0; while (j < min(k, 9)) { r += x[i + 64]; ++j; }",
    "o[i + k * 64] = 2;",
    "if (k > 0) o[0] = 2;",
    "store(o + i + k * 64, 2.0f);",
    "if (k > 0) store(x + 64 + i, 2.0f);",
    "store_if(o + i, k);",
    "r += load(x[i + k * 64]);",
    "device float& y = x[i + k * 64]; r += y;",
    "thread float& y = r; y += x[i + k * 64];",
    "o[(i + k) % 64] = 2;",
    "o[i - i * min(max(k, 0), 1)] = 2;",
    "t[(i + k) % 64] = 1; if (i == 0) r += t[0];",
    "t[i] = 1; r += t[i + k];",
    "t[i] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); r += t[i + k];",
    "if (k == 0) one = 1; if (i == 0) r += one;",
    "if (k > 0) return; threadgroup_barrier(mem_flags::mem_threadgroup);",
    "if (k == 0) threadgroup_barrier(mem_flags::mem_threadgroup);",
    "if (k > 0) return; r += 1;",
    "if (k == 0) return; r += x[i + 64];",
    "if (k == 0) simdgroup_barrier(mem_flags::mem_none);",
    "r += float(7 / (1 - k));",
    "r += float(7 % (1 - k));",
    "m = 7; m /= 1 - k; r += m;",
    "r += k > 0 ? float(7 / (n - k + 1)) : 1;",
    "r += float(1 << (k * 40));",
    "r += float(1 >> (1 + k * 40));",
    "m = 1; m <<= k * 40; r += m;",
    "if (k > 0) r += float(m << (n + 40));",
    "r += float(k / 2 + k % 2 + (k << 1));",
    "float a[4] = {1, 2, 3, 4}; r += a[k * 9];",
    "float a[4] = {1, 2, 3, 4}; if (k > 0) r += a[n + 5];",
    "r += beside(1, k);",
    "r += simd_shuffle(r, ushort(k * 40));",
    "if (k == 0) r += simd_shuffle_xor(r, 1);",
    "if (k > 0 && i % 2 == 0) r += simd_shuffle_xor(r, 1);",
    "r += simd_sum(float(k));",
    "if (k > 0) r += simd_sum(r);",
    "atomic_fetch_add_explicit(&c[i + k * 64], 1, memory_order_relaxed);",
    "if (k > 0) atomic_fetch_add_explicit(&c[i + 64], 1, memory_order_relaxed);",
    "*(device float2*)(x + 2 * (i / 4) + min(k, 1)) = float2(1, 1);",
    "r += float(k);",
    "r += max(float(k), 2.0f) / (1.0f + float(k));",
    "r = k > 0 ? r : -r;",
    "if (k > 0) r += 1; else r -= 1;",
    "m = k; k = 0; r += x[i + k];",
    "x[i] = float(k); r += x[i];",
)


def source(draw: Draw, kernels: int) -> str:
    """A source with so many kernels: `k0`, `k1`, ..."""
    return HEAD + "".join(_kernel(draw, number) for number in range(kernels))


def _kernel(draw: Draw, number: int) -> str:
    body = ""
    for _ in range(draw(1, 4) // 4 + 1):
        lines = [_WAYS[draw(0, len(_WAYS) - 1)]]
        if draw(0, 3) == 0:
            lines.append(_DECISIONS[draw(0, len(_DECISIONS) - 1)])
            lines.append(_WAYS[draw(0, len(_WAYS) - 1)])
        lines.append(_DECISIONS[draw(0, len(_DECISIONS) - 1)])
        body += "".join(f"  {{ {line}\n" for line in lines) + "  " + "}" * len(lines) + "\n"
    return _KERNEL.format(number=number, space=_SPACES[draw(0, 2)], body=body)
