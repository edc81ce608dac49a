"""Random Metal kernels, many in one source: calls, structs, vectors, arrays, references, loops, branches, barriers.

Variables that begin as a constant or an index are changed behind barriers, by references, pointers and methods.

All numbers are small whole ones, in floats and halves too, so that every order of rounding gives the same bits. Kernels
stay within their buffers, write only what is their thread's, and put barriers where they belong: a checker that finds
something in them is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

Draw = Callable[[int, int], int]  # a number from the first to the last, both included

THREADS, GROUP = 96, 64  # the last group is not whole
GAPS = {"float3": 3}  # parts before a gap that nobody writes
TYPES = {  # of what a kernel writes: the dtype's name, and how many such parts it is
    "float": ("float32", 1),
    "int": ("int32", 1),
    "float2": ("float32", 2),
    "float3": ("float32", 4),
    "float4": ("float32", 4),
    "half4": ("float16", 4),
    "packed_float3": ("float32", 3),
    "int4": ("int32", 4),
    "Small": ("float32", 2),
    "Large": ("float32", 6),
    "Mixed": ("int32", 4),
}
HEAD = """#include <metal_stdlib>
using namespace metal;
struct Small { float a, b; };
struct Large { float a[4]; float2 c; };
struct Mixed { int a; float b; half2 c; int d; };
static float wrap(float v) { return v - 64.0f * floor(v * 0.015625f); }
static int wrapi(int v) { return v & 63; }
struct Count { float n; int calls; void add(float v) { n = wrap(n + v); calls += 1; } };
struct Adds { float before; Adds(thread float& to, float v) : before(to) { to = wrap(to + v); } };
struct Holder { thread float* p; };
static void put(thread float& to, float v) { to = wrap(to + v); }
static void put_at(thread float* to, float v) { *to = wrap(*to + v); }
static void put_nested(thread float& to, float v) { put(to, v); put_at(&to, 1.0f); }
template <typename T> void put_any(thread T& to, T v) { to = T(wrap(float(to) + float(v))); }
static float put_out(float v, thread float& to) { to = wrap(v + 1.0f); return wrap(v - to); }
static float either(thread float& to, float v) { to = wrap(to + v); return 2.0f; }
static float either(const thread float& to, float v) { return 5.0f; }
static void put_small(thread Small& to, float v) { to.b = wrap(to.b + v); }
static void put_array(thread float* to, float v) { to[1] = wrap(to[0] + v); }
static void put_vector(thread float2& to, float v) { to.y = wrap(to.x + v); }
static void operator<<(thread Count& to, float v) { to.add(v); }
static thread float* where(thread float& to) { return &to; }
static Holder hold(thread float& to) { return Holder{&to}; }
static void keep(thread Holder& to, thread float& v) { to.p = &v; }
"""
_MAKE = {  # a value of the type from numbers
    "float": "wrap({0})",
    "int": "wrapi(int({0}))",
    "float2": "float2(wrap({0}), wrap({1}))",
    "float3": "float3(wrap({0}), wrap({1}), wrap({2}))",
    "float4": "float4(wrap({0}), wrap({1}), wrap({2}), wrap({0} + 1))",
    "half4": "half4(half(wrap({0})), half(wrap({1})), half(wrap({2})), 3.0h)",
    "packed_float3": "packed_float3(float3(wrap({0}), wrap({1}), wrap({2})))",
    "int4": "int4(wrapi(int({0})), wrapi(int({1})), 7, wrapi(int({2})))",
    "Small": "Small{{wrap({0}), wrap({1})}}",
    "Large": "Large{{{{wrap({0}), 2, 3, wrap({2})}}, float2(wrap({1}), wrap({0}))}}",
    "Mixed": "Mixed{{wrapi(int({0})), wrap({1}), half2(half(wrap({2}))), 9}}",
}
_CHANGES = (  # of a variable that begins as `{1}`: its declaration, how `{2}` changes it, and the number that it is
    ("float {0} = {1};", "put({0}, {2});", "{0}"),
    ("float {0} = {1};", "put_at(&{0}, {2});", "{0}"),
    ("float {0} = {1};", "put_nested({0}, {2});", "{0}"),
    ("float {0} = {1};", "put_any({0}, {2});", "{0}"),
    ("auto {0} = {1};", "r = put_out({2}, {0});", "{0}"),
    ("float {0} = {1};", "r = wrap(r + either({0}, {2}));", "{0}"),
    ("float {0} = {1};", "Adds adds{0}({0}, {2}); r = adds{0}.before;", "{0}"),
    ("float {0} = {1};", "r = sincos(0.0f * {2}, {0});", "{0}"),
    ("int {0} = 1;", "r = wrap(64.0f * frexp({2}, {0}));", "float({0})"),
    ("uint {0} = l + {1};", "put_any({0}, uint({2}));", "float({0} % 64)"),
    ("Small {0} = {{{1}, 2}};", "put_small({0}, {2});", "({0}.a + {0}.b)"),
    ("Small {0} = {{{1}, 2}};", "put({0}.a, {2});", "({0}.a + {0}.b)"),
    ("Count {0} = {{{1}, 0}};", "{0}.add({2});", "wrap({0}.n + float({0}.calls))"),
    ("Count {0} = {{{1}, 0}};", "{0} << {2};", "wrap({0}.n + float({0}.calls))"),
    ("float2 {0} = float2({1}, 1);", "put_vector({0}, {2});", "({0}.x + {0}.y)"),
    ("float {0}[2] = {{{1}, 1}};", "put_array({0}, {2});", "({0}[0] + {0}[1])"),
    ("float {0}[2] = {{{1}, 1}};", "put({0}[l % 2], {2});", "({0}[0] + {0}[1])"),
    ("float {0} = {1}; thread float* p{0} = &{0};", "*p{0} = {2};", "{0}"),
    ("float {0} = {1}; auto p{0} = where({0});", "*p{0} = {2};", "*p{0}"),
    ("float {0} = {1}; auto p{0} = hold({0});", "*p{0}.p = {2};", "{0}"),
    ("float {0} = {1}; Holder p{0}; keep(p{0}, {0});", "put(*p{0}.p, {2});", "*p{0}.p"),
    ("float {0} = {1}; auto p{0} = &l;", "{0} = wrap({2} + float(*p{0}));", "{0}"),
)
_READ = {  # a number from a value of the type
    "float": "{0}",
    "int": "float({0})",
    "float2": "({0}.x + {0}.y)",
    "float3": "({0}.z + {0}.x)",
    "float4": "({0}.w + {0}.y)",
    "half4": "(float({0}.x) + float({0}.z))",
    "packed_float3": "({0}[0] + {0}[2])",
    "int4": "float({0}.x + {0}.w)",
    "Small": "({0}.a + {0}.b)",
    "Large": "({0}.a[3] + {0}.c.y)",
    "Mixed": "(float({0}.a) + {0}.b + float({0}.c.y))",
}


def source(draw: Draw, kernels: int) -> tuple[str, list[str]]:
    """A source with so many kernels `k0`, `k1`, ..., and the type that each of them writes."""
    text, helpers, outputs = [HEAD], [], []
    names = list(TYPES)
    for number in range(4 + kernels // 4):
        helper = _helper(draw, number, helpers)
        helpers.append(helper[:2])
        text.append(helper[2])
    for number in range(kernels):
        output = names[draw(0, len(names) - 1)]
        outputs.append(output)
        text.append(_kernel(draw, number, output, helpers))
    return "".join(text), outputs


def _number(draw: Draw, known: list[str], depth: int = 2) -> str:
    """An expression whose value is a small whole number, as a float."""
    if depth == 0 or draw(0, 3) == 0:
        return known[draw(0, len(known) - 1)] if draw(0, 4) else f"{draw(0, 9)}.0f"
    one, other = _number(draw, known, depth - 1), _number(draw, known, depth - 1)
    return (
        f"wrap({one} + {other})",
        f"wrap({one} * {other})",
        f"wrap({one} - {other})",
        f"max({one}, {other})",
        f"({one} < {other} ? {one} : {other})",
        f"abs({one})",
        f"wrap(float(uint({one}) ^ 5u))",
    )[draw(0, 6)]


def _three(draw: Draw, known: list[str]) -> list[str]:
    return [_number(draw, known, 1) for _ in range(3)]


def _helper(draw: Draw, number: int, before: list[tuple[str, str]]) -> tuple[str, str, str]:
    """A function of the program's own: its name, what it returns, its text. All take (number, value, reference)."""
    names = list(TYPES)
    result = names[draw(0, len(names) - 1)]
    name, taken = f"f{number}", names[draw(0, len(names) - 1)]
    attribute = ("", "", "static ", "inline ", "__attribute__((noinline)) ", "template <typename T> ")[draw(0, 5)]
    kind = "T" if attribute.startswith("template") else "float"
    lines = [
        f"{attribute}{result} {name}({kind} a, thread float& r) {{",
        f"  {taken} v = {_MAKE[taken].format('a', 'r', 'a + 1')};",
    ]
    known = ["a", "r", _READ[taken].format("v")]
    if draw(0, 1):
        lines.append(f"  for (int j = 0; j < {draw(1, 4)}; ++j) r = {_number(draw, [*known, 'float(j)'])};")
    if before and draw(0, 1):
        called, returned = before[draw(0, len(before) - 1)]
        lines.append(f"  {returned} w = {called}({_number(draw, known, 1)}, r);")
        known.append(_READ[returned].format("w"))
    if draw(0, 2) == 0:
        lines.append(f"  if (a > {draw(0, 40)}.0f) return {_MAKE[result].format(*_three(draw, known))};")
    lines.append(f"  return {_MAKE[result].format(*_three(draw, known))};\n}}\n")
    return name, result, "\n".join(lines)


def _kernel(draw: Draw, number: int, output: str, helpers: list[tuple[str, str]]) -> str:
    lines = [
        f"kernel void k{number}(device {output}* o, device const float* x, constant uint& n, device atomic_int* count,",
        "    uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]],",
        "    uint s [[threads_per_threadgroup]]) {",
        "  float r = x[i];",
        "  float2 p = float2(r, 2.0f);",
    ]
    known = ["r", "p.x", "float(l)"]
    if draw(0, 2) == 0:  # an array of a thread's own that lives across a barrier needs a fiber
        lines.append(f"  float a[{draw(2, 9)}] = {{r, 1}};")
        known.append("a[1]")
    for step in range(draw(1, 5)):
        _statement(draw, step, lines, known, helpers)
        if draw(0, 2) == 0:
            declared, change, read = _CHANGES[draw(0, len(_CHANGES) - 1)]
            name, start = f"c{step}", "r" if draw(0, 3) == 0 else f"{draw(0, 9)}.0f"
            lines.append(f"  {declared.format(name, start)}")
            _statement(draw, 10 + step, lines, known, helpers)
            lines.append(f"  {change.format(name, '', _number(draw, known, 1))}")
            known.append(read.format(name))
    ways = [entry for entry in helpers if entry[1] == output]
    if ways and draw(0, 3):
        lines.append(f"  o[i] = {ways[draw(0, len(ways) - 1)][0]}({_number(draw, known, 1)}, r);")
    elif draw(0, 1):
        lines.append(f"  device {output}& to = o[i];\n  to = {_MAKE[output].format(*_three(draw, known))};")
    else:
        lines.append(f"  o[i] = {_MAKE[output].format(*_three(draw, known))};")
    return "\n".join(lines) + "\n}\n"


def _statement(draw: Draw, step: int, lines: list[str], known: list[str], helpers: list[tuple[str, str]]) -> None:
    kind = draw(0, 8)
    if kind == 0:
        lines.append(f"  for (uint j = 0; j < n % 7; ++j) r = {_number(draw, [*known, 'x[j]', 'float(j)'])};")
    elif kind == 1:
        called, returned = helpers[draw(0, len(helpers) - 1)]
        lines.append(f"  {returned} v{step} = {called}({_number(draw, known, 1)}, r);")
        known.append(_READ[returned].format(f"v{step}"))
    elif kind == 2:
        other = "a[0]" if "a[1]" in known else "p.y"
        lines.append(f"  if (l % {draw(2, 5)} == 0) r = {_number(draw, known)}; else {other} = {_number(draw, known)};")
    elif kind == 3 and "a[1]" in known:
        lines.append(
            f"  for (int j = 0; j < 2; ++j) a[j] = {_number(draw, [*known, 'float(j)'])};\n  p.yx = float2(a[0], r);"
        )
    elif kind == 3:
        lines.append(f"  for (int j = 0; j < 2; ++j) p.yx = float2({_number(draw, [*known, 'float(j)'])}, r);")
    elif kind == 4:
        lines.append(f"  atomic_fetch_add_explicit(count, int({_number(draw, known, 1)}), memory_order_relaxed);")
    elif kind == 5:
        call = ("simd_sum", "simd_max", "simd_prefix_inclusive_sum", "simd_min")[draw(0, 3)]
        lines.append(f"  r = wrap({call}({_number(draw, known, 1)}));")
    else:
        shared = list(TYPES)[draw(0, len(TYPES) - 1)]
        values = _MAKE[shared].format(*_three(draw, known))
        ways = [entry for entry in helpers if entry[1] == shared]
        if ways and draw(0, 1):
            values = f"{ways[draw(0, len(ways) - 1)][0]}({_number(draw, known, 1)}, r)"
        lines.append(f"  threadgroup {shared} t{step}[{GROUP}];\n  t{step}[l] = {values};")
        lines.append("  threadgroup_barrier(mem_flags::mem_threadgroup);")
        lines.append(f"  {shared} u{step} = t{step}[(l + {draw(1, 40)}) % s];")
        known.append(_READ[shared].format(f"u{step}"))
