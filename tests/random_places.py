"""Random Metal kernels whose accesses follow from where a thread is: most stay within their buffers, some do not.

They step beside them in the first group, the last one or one between, race within a group, or divide by zero there.
"""

from __future__ import annotations

from collections.abc import Callable

Draw = Callable[[int, int], int]  # a number from the first to the last, both included

HEAD = """#include <metal_stdlib>
using namespace metal;
constant int STEP = 3;
static int half_of(int v) { if (v > 6) return v / 2; return v; }
static float at(device const float* from, int i) { return from[i]; }
static void put(device float* to, uint i, float v) { to[i] = v; }
"""
_KERNEL = """kernel void k{number}(device float* o, device const float* x, constant int& n, device atomic_int* c,
    uint2 p [[thread_position_in_grid]], uint2 l [[thread_position_in_threadgroup]],
    ushort2 g [[threadgroup_position_in_grid]], uint2 size [[threads_per_threadgroup]],
    uint2 all [[threads_per_grid]], uint i [[thread_index_in_threadgroup]]) {{
  threadgroup float t[36];
  const uint w = p.y * all.x + p.x;
  int v = 0, u = int(w);
  float r = 1.0f;
{body}  o[w] = r;
}}
"""
_PLACES = (
    *("w", "w", "w", "u", "p.x", "int(p.x)", "p.y * all.x + p.x", "g.x * size.x + l.x", "g.x", "g.y", "l.x", "i", "v"),
    *("w / 4", "w % 4", "w % 8", "w >> 2", "w & 3", "w / size.x", "w % size.x", "p.x / size.x", "w * 2 / 2", "u - 1"),
    *("w + 1", "w + n", "n", "0", "all.x - 1 - p.x", "min(u, n)", "max(u - n, 0)", "half_of(u)", "half_of(int(i))"),
    *("ushort(w)", "long(w)", "long(u) - 1 + 1", "w * STEP", "u * n", "STEP", "w ^ 1", "(u < n ? u : n)", "i * i"),
    *("size.x * size.y", "w - g.x", "p.x - g.x * size.x", "char(w)", "clamp(u, 1, n)", "2 * u", "uchar(w + 250)"),
)
_CONDITIONS = (
    *("u < n", "p.x < all.x - 1", "p.x > 0", "g.x == 0", "g.x == 1", "l.x == 0", "i < 2", "u != n", "p.x <= 5", "true"),
    *("x[w] > 0.5f", "g.y < 1", "w % 2 == 0", "p.x < p.y", "u >= 7", "n > 3", "u < n && l.x > 0", "u < 3 || u > 9"),
    *("!(u < n)", "g.x < 2 ? l.x > 0 : l.x > 1", "p.x + 2 < all.x && x[w + 1] > 0"),
)
_STATEMENTS = (
    *("r += x[{a}];", "r += x[{a}];", "r += x[{a}] * x[{b}];", "o[{a}] = r;", "v = {a};", "v += {a};", "u = {a};"),
    *("if ({c}) {{ {s} }}", "if ({c}) {{ {s} }} else {{ {s} }}", "if ({c}) v = {a};", "if ({c}) return;", "{s} {s}"),
    *("t[i] = r; threadgroup_barrier(mem_flags::mem_threadgroup); r += t[i];", "t[i] = x[{a}];", "r += at(x, {a});"),
    *("t[i] = r; threadgroup_barrier(mem_flags::mem_threadgroup); r += t[i ^ 1];", "t[0] = {a};", "put(o, {a}, r);"),
    *("for (int k = 0; k < 3; ++k) {{ r += x[{a}]; {s} }}", "for (uint k = l.x; k < 8; k += 4) {{ r += x[k]; {s} }}"),
    *(
        "for (uint k = w; k < w + 2; k++) r += x[k];",
        "for (int k = u; k < n; ++k) r += x[k];",
        "r += x[({a}) / max(n, 1)];",
    ),
    *("for (int k = 0; k < n; ++k) {{ if (k == 2) break; v += 1; {s} }}", "for (int k = 4; k > 0; k /= 2) r += x[k];"),
    *("device const float* q = x + ({a}); r += q[{b}];", "auto q = x + ({a}); r += *q;", "r += simd_sum(float({a}));"),
    *(
        "atomic_fetch_add_explicit(&c[{a}], 1, memory_order_relaxed);",
        "r += ({a}) / ({b});",
        "r += 1 << ({a});",
        "v++;",
    ),
    *("auto y = x[{a}]; r += y > 0 ? y : 0.0f;", "if (x[w] > 0.5f) r += 2;", "if (x[w] > 0.5f) v = 1;", "--u;"),
    *("int m = {a}; {{ int m = {b}; r += x[m]; }} r += x[m];", "int a[3] = {{1, 2, 3}}; r += a[({a}) % 3];"),
    *("while (v < 3) {{ v += 1; r += x[{a}]; }}", "do {{ r += x[{a}]; v += 2; }} while (v < 4);", "u = int(r);"),
    *("float2 z = ((device const float2*)x)[{a}]; r += z.y;", "uint2 z = p; z.x += 1; r += x[z.x]; {s}"),
)


def _statement(draw: Draw, depth: int) -> str:
    one = _STATEMENTS[draw(0, len(_STATEMENTS) - 1)]
    if depth == 0 and "{s}" in one:
        one = "r += x[{a}];"
    a, b = (_PLACES[draw(0, len(_PLACES) - 1)] for _ in range(2))
    if draw(0, 3):  # most of them are the plain place of a thread
        a = _PLACES[draw(0, 7)]
    s = f"{{ {_statement(draw, depth - 1)} }}" if "{s}" in one else ""
    return one.format(a=a, b=b, c=_CONDITIONS[draw(0, len(_CONDITIONS) - 1)], s=s)


def source(draw: Draw, kernels: int) -> str:
    """A source of so many kernels, k0 and on. They take floats to write, floats, a number and counts."""
    parts = [HEAD]
    for number in range(kernels):
        body = "".join(f"  {{ {_statement(draw, 2)} }}\n" for _ in range(draw(1, 3)))
        parts.append(_KERNEL.format(number=number, body=body))
    return "".join(parts)


def shapes(draw: Draw) -> tuple[tuple[int, int], tuple[int, int], int, int]:
    """A grid, a group, a number, and how many elements the buffers have."""
    group = (draw(2, 8), 1 if draw(0, 1) else draw(1, 4))
    grid = (group[0] * draw(2, 9) - draw(0, 1) * draw(0, 1), group[1] * (1 if draw(0, 1) else draw(1, 4)))
    return grid, group, draw(0, 12), grid[0] * grid[1] + max(draw(-4, 4), 0) + (40 if draw(0, 2) == 0 else 0)
