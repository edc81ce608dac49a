"""What public Metal kernels are written with: each form of the language that they need, compiled and run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metal.forms import error_of
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

# Name: a kernel `f`, or what stands before its body, and what it writes into `out`.
FORMS: dict[str, tuple[str, list[float]]] = {
    "functions of the compiler, and overloads of bfloat that are made of them": (
        """
        namespace metal {
        METAL_FUNC bfloat exp2(bfloat x) {
          return static_cast<bfloat>(__metal_exp2(static_cast<float>(x), __METAL_FAST_MATH__) + 64); }
        METAL_FUNC bfloat fmax(bfloat x, bfloat y) {
          const float a = x, b = y;
          return static_cast<bfloat>(__metal_fmax(a, b, __METAL_MAYBE_FAST_MATH__));
        }
        namespace precise {
        METAL_FUNC bfloat sqrt(bfloat x) {
          return static_cast<bfloat>(__metal_sqrt(static_cast<float>(x), __METAL_PRECISE_MATH__)); }
        }
        }
        kernel void f(device float* out) {
          int e;
          out[0] = metal::exp2(bfloat(3)); out[1] = fmax(bfloat(2), bfloat(7)); out[2] = precise::sqrt(bfloat(16));
          out[3] = __metal_frexp(6.0f, &e) + e; out[4] = __metal_fmedian3(3.0f, 9.0f, 5.0f, 0);
            out[5] = fmin3(2.0, 1.0, 3.0);
        }""",
        [72, 7, 4, 3.75, 5, 1],
    ),
    "SIMD functions of the compiler": (
        """
        namespace metal {
        METAL_FUNC bfloat simd_sum(bfloat x) {
          return static_cast<bfloat>(__metal_simd_sum(static_cast<float>(x)) * 2); }
        METAL_FUNC bfloat simd_shuffle_down(bfloat x, ushort by) {
          return as_type<bfloat>(__metal_simd_shuffle_down(as_type<ushort>(x), by));
        }
        }
        kernel void f(device float* out, uint i [[thread_index_in_simdgroup]]) {
          bfloat a, b = simd_shuffle_down(bfloat(i), 3);
          if (i % 2 == 0) a = simd_sum(bfloat(1)); else a = -simd_sum(bfloat(1));
          if (i < 2) out[i] = a;
          if (i == 5) out[2] = b;
          if (i == 6) out[3] = __metal_get_thread_index_in_simdgroup(ushort()) + __metal_get_simdgroup_size(ushort());
        }""",
        [32, -32, 8, 38],
    ),
    "shuffles within parts of a SIMD group": (
        """
        kernel void f(device float* out, uint i [[thread_index_in_simdgroup]]) {
          float down = simd_shuffle_and_fill_down(float(i), 100.0f + i, 3, 8);
          float up = simd_shuffle_and_fill_up(float(i), 100.0f + i, 3, 8);
          if (i >= 8 && i < 16) { out[i - 8] = down; out[i] = up; }
        }""",
        [11, 12, 13, 14, 15, 108, 109, 110, 113, 114, 115, 8, 9, 10, 11, 12],
    ),
    "the least number by shifts, twice, where lanes past the end keep theirs": (
        """
        struct Pair { uint at; float value; };
        Pair shifted(Pair p, ushort by) { return {simd_shuffle_down(p.at, by), simd_shuffle_down(p.value, by)}; }
        kernel void f(device float* out, uint i [[thread_index_in_simdgroup]]) {
          Pair best{i, 9.0f - (i == 20) * 2};
          for (int turn = 0; turn < 2; ++turn)
            for (ushort by = 16; by > 0; by /= 2) {
              Pair other = shifted(best, by);
              if (other.value < best.value) best = other;
            }
          if (i == 0) { out[0] = best.at; out[1] = best.value; }
          float up = simd_shuffle_up(float(i), 2), down = quad_shuffle_down(float(i), 3);
          float left = quad_shuffle_up(float(i), 1);
          if (i < 4) { out[2 + i] = up; out[6 + i] = down; out[10 + i] = left; }
        }""",
        [20, 7, 0, 1, 0, 1, 3, 1, 2, 3, 0, 0, 1, 2],
    ),
    "conversions and constructors that address spaces tell apart": (
        """
        struct Two {
          float a, b;
          constexpr Two(float x, float y) thread : a(x), b(y) {}
          constexpr Two(float x, float y) constant : a(x), b(y) {}
          constexpr operator vec<float, 2>() const thread { return vec<float, 2>(a, b); }
          constexpr operator vec<float, 2>() const device { return vec<float, 2>(a, b); }
          constexpr operator vec<float, 2>() const constant { return vec<float, 2>(a, b); }
        };
        struct Log {
          constexpr Log(constant char*) constant {}
          template <typename... A> int say(A...) const constant { return 3; }
        };
        constant Log logger("x");
        kernel void f(device float* out) { float2 v = Two(1, 2); out[0] = v.y; out[1] = logger.say(1, 2); }""",
        [2, 3],
    ),
    "specialisations within a class": (
        """
        struct Divide {
          template <typename T> T operator()(T x, T y) { return x / y; }
          template <> float operator()(float x, float y) { return trunc(x / y); }
          template <typename T> T half_of(T x) { return x / 2; }
        };
        kernel void f(device float* out) { out[0] = Divide()(7.0f, 2.0f); out[1] = Divide()(half(7), half(2));
          out[2] = Divide().half_of(5); }""",
        [3, 3.5, 2],
    ),
    "names that Metal leaves to programs": (
        """
        namespace metal {
        template <typename T> struct is_empty : bool_constant<__is_empty(T)> {};
        template <typename T> constexpr constant bool is_empty_v = is_empty<T>::value;
        template <typename... T> struct make_void { typedef void type; };
        template <typename... T> using void_t = typename make_void<T...>::type;
        }
        constant bool forward = true;
        template <typename T> constexpr constant bool known = _disjunction<is_same<T, int>, is_same<T, float>>::value;
        struct Nothing {};
        kernel void f(device float* out) { out[0] = is_empty_v<Nothing> + forward;
          out[1] = known<float> + 2 * known<half>; }""",
        [2, 1],
    ),
    "coherent memory": (
        """
        #pragma unused(f)
        kernel void f(volatile coherent(system) device float* out, coherent device float* more) {
          int coherent = 2; out[0] = 5; out[1] = coherent; }""",
        [5, 2],
    ),
    "casts to bfloat, and a choice between it and float": (
        """
        struct Always { constexpr operator bool() const thread { return true; } };
        kernel void f(device float* out) {
          out[0] = static_cast<bfloat>(Always()); const bfloat b = bfloat(3.0); float a = 1.0 + 1.0 / 1024;
          out[1] = out[0] > 0 ? a : b; out[2] = out[0] > 1 ? a : b;
        }""",
        [1, 1 + 1 / 1024, 3],
    ),
    "lists shorter than their vectors": (
        """
        kernel void f(device float* out) {
          uint4 v = {1, 2, uint(3)}; float3 w = {4.0, 5.0}; float4 q = {w.xy, w.zy};
          for (int i = 0; i < 4; ++i) { out[i] = v[i]; out[4 + i] = q[i]; }
        }""",
        [1, 2, 3, 0, 4, 5, 0, 5],
    ),
    "arrays filled by a range": (
        """
        kernel void f(device float* out) {
          float a[3] = { [0 ... 2] = 0.5 }; float b[4] = {[0 ... 4 - 2]
             = -FLT_MAX / 2};
          out[0] = a[0] + a[1] + a[2]; out[1] = b[2] < -1e38; out[2] = b[3];
        }""",
        [1.5, 1, 0],
    ),
    "headers for other languages": (
        """
        #if defined(__METAL_VERSION__)
        #define WIDTH 3
        #else
        #include <stdint.h>
        #include "cuda/half.h"
        #endif
        kernel void f(device float* out) { out[0] = WIDTH; }""",
        [3],
    ),
    "structs as C has them": (
        """
        extern "C" struct Pair { float a, b; };
        typedef struct { float scale; int count; } block_q;
        typedef struct tagged { int n; } tagged_t, tagged_u;
        kernel void f(device float* out) { Pair p = {1, 2}; block_q q = {3, 4}; tagged_t t = {5}; out[0] = p.b;
          out[1] = q.scale; out[2] = t.n; }""",
        [2, 3, 5],
    ),
    "other elements for packed vectors and matrices": (
        """
        kernel void f(device float* out) {
          packed_char4 p = packed_char4(char4(1, -2, 3, -4)); float4 v = float4(p); half4x4 m = half4x4(float4x4(2.0));
          out[0] = v.y; out[1] = v.w; out[2] = m[1][1] + m[0][1];
        }""",
        [-2, -4, 2],
    ),
    "instances by the type of the kernel, and functions as arguments of templates": (
        """
        template <typename V> void twice(device const float* from, thread V& to) { to = V(from[0] * 2); }
        template <typename T, short n, void (*get)(device const float*, thread T&)>
        kernel void g(device float* out, uint i [[thread_position_in_threadgroup]]) {
          threadgroup T shared[n];
          T mine;
          get(out, mine);
          threadgroup_barrier(mem_flags::mem_none);
          shared[i] = mine;
          threadgroup_barrier(mem_flags::mem_threadgroup);
          out[i] = shared[n - 1 - i] + n;
        }
        namespace kernels { typedef decltype(g<float, 2, twice<float>>) g_t; }
        template [[host_name("f")]] kernel kernels::g_t g<float, 4, twice<float>>;
        template [[host_name("f_half")]] kernel kernels::g_t g<half, 2, twice>;""",
        [4, 4, 4, 4],
    ),
    "members overloaded by where the object is": (
        """
        template<typename T, size_t Num>
        struct spvUnsafeArray
        {
            T elements[Num ? Num : 1];

            thread T& operator [] (size_t pos) thread { return elements[pos]; }
            constexpr const thread T& operator [] (size_t pos) const thread { return elements[pos]; }
            device T& operator [] (size_t pos) device { return elements[pos]; }
            constexpr const device T& operator [] (size_t pos) const device { return elements[pos]; }
            constexpr const constant T& operator [] (size_t pos) const constant { return elements[pos]; }
            threadgroup T& operator [] (size_t pos) threadgroup { return elements[pos]; }
            constexpr const threadgroup T& operator [] (size_t pos) const threadgroup { return elements[pos]; }
        };
        constant spvUnsafeArray<float, 2> table = spvUnsafeArray<float, 2>({ 1.0, 2.0 });
        kernel void f(device spvUnsafeArray<float, 2>& out [[buffer(0)]]) {
          spvUnsafeArray<float, 2> own;
          threadgroup spvUnsafeArray<float, 2> shared;
          own[0] = 5;
          shared[1] = 7;
          out[0] = own[0] + table[1];
          out[1] = out[0] + shared[1];
        }""",
        [7, 14],
    ),
    "functions of other stages beside kernels": (
        """
        struct VertexOut { float4 position [[position]]; float2 uv; float size [[point_size]]; };
        struct Uniforms { float4x4 m; };
        float half_of(float x) { return x / 2; }
        void clip(float a) { if (a < 0.5) discard_fragment(); }
        vertex VertexOut of_vertex(uint id [[vertex_id]], constant Uniforms& u [[buffer(0)]],
                                   const device float4* p [[buffer(1)]]) {
          VertexOut out;
          out.position = u.m * p[id] * half_of(2);
          return out;
        }
        vertex float4 declared(uint id [[vertex_id]]);
        fragment float4 of_fragment(VertexOut in [[stage_in]], texture2d<float> t [[texture(0)]],
                                    sampler s [[sampler(0)]]) {
          clip(in.uv.x);
          return t.sample(s, in.uv);
        }
        [[vertex]] float4 by_attribute(uint id [[vertex_id]]) { return float4(id); }
        kernel void f(device float* out) { out[0] = half_of(6); }""",
        [3],
    ),
    "lists of values": (
        """
        struct Three {
          float a[3];
          Three(std::initializer_list<float> from) { int n = 0; for (float x : from) a[n++] = x; }
        };
        kernel void f(device float* out) {
          Three v{1, 2, 3};
          for (int k : {10, 20}) out[0] += v.a[2] * k;
        }""",
        [90],
    ),
    "functions of numbers for vectors": (
        """
        kernel void f(device float* out) {
          float3 whole;
          half2 h;
          int2 e;
          out[0] = modf(float3(1.5, 2.25, -3.5), whole).z + whole.z;
          out[1] = modf(half2(1.5h, -2.5h), h).y + h.x;
          out[2] = frexp(float2(6, 8), e).x + e.y;
          out[3] = ldexp(float2(3, 1), int2(1, 4)).y + ilogb(float2(9, 1)).x + divide(float2(6), float2(3)).x;
          out[4] = madhi(int2(1 << 30, 5), int2(8, 4), int2(7)).x + mad24(int2(2), int2(3), int2(4)).y;
          out[5] = madsat(char2(100, -100), char2(2, 2), char2(0)).x + madsat(uchar2(9), uchar2(3), uchar2(1)).y;
          out[6] = median3(float2(1, 9), float2(5), float2(7, 2)).x + max3(int2(1), int2(4), int2(3)).y;
          out[7] = extract_bits(uint2(12), 2u, 2u).x + insert_bits(uint2(0), uint2(1), 3u, 1u).y;
          float2 c;
          out[8] = precise::sincos(float2(0), c).x + c.y + fast::modf(float2(2.5), c).x + c.x;
        }""",
        [-3.5, 0.5, 4.75, 21, 19, 155, 9, 11, 3.5],
    ),
    "volatile members": (
        """
        struct Held { volatile int a; volatile float4 v; float b; volatile half2x2 m; };
        kernel void f(device Held* more, device volatile float2* out) {
          threadgroup Held shared;
          volatile float4 own = float4(3);
          shared.a = 2;
          shared.v = own;
          Held copy = shared;
          out[0] = float2(copy.v.x + copy.a, copy.v.w);
        }""",
        [5, 3],
    ),
    "a kernel and a function of one name": (
        """
        float f(float x) { return x * 2; }
        kernel void f(device float* out) { threadgroup float t[2]; t[0] = 4; out[0] = f(t[0]) + f(1); }""",
        [10],
    ),
    "a constant in the device's memory that is longer than its type": (
        """
        struct Many { uint count; float4 all[1]; };
        kernel void f(device float* out, const device Many& more [[buffer(1)]]) {
          out[0] = 1;
          out[12] = 9;
          out[1] = more.all[2].x + more.all[0].x;
        }""",
        [1, 9],
    ),
}


def _compiled(source: str) -> Any:
    return torch.mps.compile_shader(HEAD + source)


@pytest.mark.parametrize("form", FORMS)
def test_what_kernels_are_written_with(form: str) -> None:
    """Compiled as it stands, and run by 32 threads or as many as there are values."""
    source, expected = FORMS[form]
    shader = _compiled(source)
    out = torch.zeros(max(len(expected), 16), device="mps")
    threads = 4 if "f_half" in source else 32 if "simd" in source else 1
    shader.f(out, *([out] if "more" in source else []), threads=threads, group_size=threads)
    assert out.tolist()[: len(expected)] == expected


CONSTANTS = (
    HEAD
    + """
constant bool quick [[function_constant(0)]];
constant int width [[function_constant(1)]];
constant int steps = is_function_constant_defined(width) ? width : 7;
constant int four = 4;
struct Params { int width; };
int through(int x) { return quick ? x : -x; }
template <typename T> struct Wide { static int get() { return steps; } };
struct Plain { static int get() { return four; } };
kernel void none(device int* x, constant Params& p) { x[0] = four + p.width; }
kernel void itself(device int* x) { x[0] = width; }
kernel void called(device int* x) { x[0] = through(1); }
kernel void derived(device int* x) { x[0] = steps; }
kernel void bound(device int* x, device int* y [[buffer(1), function_constant(quick)]]) { x[0] = 1; }
template <typename G> kernel void of(device int* x) { x[0] = G::get(); }
template [[host_name("of_plain")]] kernel void of<Plain>(device int*);
template [[host_name("of_wide")]] kernel void of<Wide<int>>(device int*);
"""
)


def test_kernels_without_function_constants_run() -> None:
    """A library has some; torch gives them no value, and that is no matter to who reads none."""
    shader = torch.mps.compile_shader(CONSTANTS)
    assert dir(shader) == ["bound", "called", "derived", "itself", "none", "of_plain", "of_wide"]
    x = torch.zeros(1, dtype=torch.int32, device="mps")
    shader.none(x, torch.tensor([5], dtype=torch.int32, device="mps"))
    assert x.item() == 9
    shader.of_plain(x)
    assert x.item() == 4


@pytest.mark.parametrize(
    ("kernel", "constant"),
    [
        ("itself", "'width' (program_source:5)"),
        ("called", "'quick' (program_source:4)"),
        ("derived", "'width' (program_source:5)"),  # also where it may be missing: a Mac makes no pipeline of it
        ("bound", "'quick' (program_source:4)"),
        ("of_wide", "'width' (program_source:5)"),
    ],
)
def test_a_kernel_that_reads_a_function_constant_is_refused(kernel: str, constant: str) -> None:
    """By itself, when it is asked for, with the words of a Mac."""
    shader = torch.mps.compile_shader(CONSTANTS)
    assert error_of(getattr, shader, kernel) == (
        f"anymps: the kernel '{kernel}' reads the function constant {constant}, to which torch.mps.compile_shader "
        f'gives no value; a Mac ends the process here: "function {kernel} cannot be used to build a pipeline state. '
        'Use newFunctionWithName:constantValues:... to get the specialized function"'
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "#if 1\n#include <stdint.h>\n#endif\nkernel void f(device float* out) {}",
            "program_source:4:2: error: #error stdint.h: No such file or directory\n#include <stdint.h>\n ^\n",
        ),
        (
            "kernel void f(device float* out) { uint4 v = uint4(1, 2, 3); }",
            "program_source:3:59: error: no matching function for call to 'uint4::vec(int, int, int)'\n"
            "kernel void f(device float* out) { uint4 v = uint4(1, 2, 3); }\n" + " " * 58 + "^\n",
        ),
    ],
)
def test_what_stays_wrong(source: str, expected: str) -> None:
    """A header that is reached and is not there, and a vector that is not made from a list."""
    with pytest.raises(SyntaxError) as raised:
        _compiled(source)
    assert str(raised.value) == expected
