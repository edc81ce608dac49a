"""Random Metal kernels in which each thread goes through a row by strides: sums, maxima, counts, and stores of its own.

The numbers are any, so that another order of a thread's sums gives other bits. No two threads touch what one of them
writes, and all stay within their buffers.
"""

from __future__ import annotations

from collections.abc import Callable

Draw = Callable[[int, int], int]  # a number from the first to the last, both included

THREADS = 120
SIZES = (64, 32, 40, 7)  # of groups: whole vectors of threads, and some that are left over
ROW = 512  # elements that a group's loops of one start store
OWN = ("l", "f", "l + 5", "n % 3 + l")
ROWS = len(OWN)
LENGTH = 2048  # of the buffers that are read
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def source(draw: Draw, kernels: int) -> str:
    """A source with kernels `k0`, `k1`, and so on."""
    return HEAD + "".join(_kernel(draw, number) for number in range(kernels))


def _kernel(draw: Draw, number: int) -> str:
    lines = [
        f"kernel void k{number}(device float* o, device float* w, device const float* x, device const int* z,",
        "    device const half* h, constant uint& n, uint i [[thread_position_in_grid]],",
        "    uint l [[thread_index_in_threadgroup]], uint s [[threads_per_threadgroup]],",
        "    uint g [[threadgroup_position_in_grid]]) {",
        "  float v = 1.0f, m = -INFINITY;",
        "  int c = 3;",
        f"  const uint f = l + {draw(0, 9)};",
        f"  uint e = n / {draw(1, 3)} + l % {draw(1, 3)};",
    ]
    if draw(0, 3) == 0:
        lines.append(f"  if (l > {draw(3, 60)}) return;")
    for _ in range(draw(1, 3)):
        lines += [f"  {_loop(draw)}", "  v = v * 0.25f + simd_max(v);"]
    return "\n".join([*lines, "  o[i] = v + m + float(c);", "}", ""])


def _loop(draw: Draw) -> str:
    start = ("l", "l", "f", "l + 5", "n % 3 + l", "l * 2", "40 - l % 9")[draw(0, 6)]
    bound = ("n", "e", "n + 1", "n % 50", "l * 3", "0", "f + 70")[draw(0, 6)]
    step = ("s", "s", "32", "3", "s * 2", "n % 5 + 1")[draw(0, 5)]
    kind = ("uint", "int", "unsigned")[draw(0, 2)]
    # With these an element is one thread's alone; with another start it is another thread's, so each has a row.
    row = OWN.index(start) if step == "s" and start in OWN else None
    head = f"for ({kind} j = {start}; j < {bound}; {'j += ' + step})"
    return f"{head} {_body(draw, row)}"


def _element(draw: Draw) -> str:
    places = ("j", f"j + {draw(0, 9)}", f"g * {draw(1, 20)} + j", "j * 2", "n + 7 - j % 8", "n % 9")
    place = places[draw(0, 5) if draw(0, 2) == 0 else draw(0, 2)]
    return ("x[{}]", "x[{}]", "float(z[{}])", "float(h[{}])")[draw(0, 3)].format(place)


def _body(draw: Draw, row: int | None) -> str:
    one, other = _element(draw), _element(draw)
    forms = [
        f"v += {one};",
        f"v = v * 0.75f + {one} * {other};",
        f"m = max(m, {one});",
        f"{{ v += {one}; m = fmax(m, {other} - v); }}",
        f"{{ const float t = {one}; v += t * t; c += int({other}); }}",
        f"v += exp(min({one}, 3.0f) - 2.0f);",
        f"{{ float t = {one}; t *= {other}; m = max(t, m); c ^= int(j); }}",
        f"v += {one} > 0.5f ? {other} : 1.0f;",
    ]
    if row is not None:
        mine = f"w[g * {ROWS * ROW} + {row * ROW} + j]"
        forms += [
            f"{mine} = {one} * 0.5f + v;",
            f"{mine} *= {one};",
            f"v += {mine} = {one} + {other};",
            f"{{ v += {mine}; {mine} = v; }}",
            f"{{ {mine} = {one}; v += {mine}; }}",
            f"{mine} += {mine} + float(c);",
        ]
    return forms[draw(0, len(forms) - 1)]
