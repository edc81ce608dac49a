"""What Metal's language has beyond C++ in the forms that programs use, each compiled and run."""

from __future__ import annotations

import pytest
import torch

from metal_shaders import HEAD, library

pytestmark = pytest.mark.usefixtures("virtual_device")

DIALECT = (
    HEAD
    + """
#define CONST static constant constexpr const
#define LIST(NAME, TYPE)                                                                     \\
  template [[host_name(#NAME "_" #TYPE)]] kernel void NAME<TYPE>(device TYPE*, uint)
#if __METAL_VERSION__ >= 300 && defined(__HAVE_BFLOAT__)
template <typename T> kernel void twice(device T* x, uint i [[thread_position_in_grid]]) { x[i] *= T(2); }
#else
kernel void twice(device float* x [[buffer(7)]]) { no such line }
#endif
#ifdef NEVER
kernel void never(device float* x) { x[0] = missing; }
#endif
LIST(twice, float);
LIST(twice, bfloat);

// Overloads and constructors that only address spaces tell apart.
inline float total(device const float* x) { return x[0] + x[1]; }
inline float total(threadgroup const float* x) { return x[0] + x[1]; }
inline float total(constant float* x) { return x[0] + x[1]; }
struct Pair {
  float a, b;
  Pair() thread = default;
  Pair() device = default;
  Pair() constant = default;
  Pair(float x, float y) thread : a(x), b(y) {}
  float sum() const thread { return a + b; }
  float sum() const device { return a + b; }
  CONST float scale = 4.0;
};
namespace outer { namespace inner {
constant float table[] = {0.5, 1.5, 2.5};
[[kernel]] void spaces(device float* out, constant float* in) {
  Pair pair(in[0], in[1]);
  out[0] = pair.sum() * Pair::scale;
  out[1] = total(in);
  out[2] = total(out) + table[1];
  device Pair* at = reinterpret_cast<device Pair*>(out + 4);
  at->a = in[0];
  out[3] = at->sum();
}
} }
typedef float wide __attribute__((ext_vector_type(8)));
kernel void types(device float* out, device half* h, device bfloat* b) {
  wide w = {1, 2, 3, 4, 5, 6, 7, 8};
  w = w * w;
  out[0] = w[7];
  auto half_way = 0.5;
  static_assert(is_same_v<decltype(half_way), float>, "there is no double");
  h[0] = 1.0h / 3.0h;
  b[0] = bfloat(1.0) + bfloat(0.00390625);
  out[1] = fast::exp(b[0]) + precise::max(2.0, 3);
  const float3x3 m(float3(1, 0, 0), float3(0, 2, 0), float3(0, 0, 3));
  const float3 v = m * float3(1.0, 2.0, 3.0).zyx;
  out[2] = v.x * 100 + v.y * 10 + v.z;
  packed_float3 p = {1.0, 2.0, 3.0};
  out[3] = dot(float3(p), float3(1)) + as_type<float>(0x3f800000u) + sizeof(packed_float3) + sizeof(float3);
  out[4] = select(float2(1.0, 2.0), float2(3.0, 4.0), bool2(true, false)).x + float(popcount(255u)) + clamp(9, 1, 5);
  out[5] = int(any(float4(1.0, NAN, 0.0, 2.0) != float4(1.0, 2.0, 0.0, 2.0))) + numeric_limits<ushort>::max();
}
"""
)


def test_macros_and_conditions_are_done_first() -> None:
    """Kernels made by a macro, names joined by `#`, and lines that an `#if` leaves out."""
    assert dir(library(DIALECT)) == ["spaces", "twice_bfloat", "twice_float", "types"]
    x = torch.ones(3, device="mps", dtype=torch.bfloat16)
    library(DIALECT).twice_bfloat(x)
    assert x.tolist() == [2, 2, 2]


def test_errors_behind_the_preprocessor_have_the_users_lines() -> None:
    """`#if` does not move them."""
    with pytest.raises(SyntaxError) as raised:
        torch.mps.compile_shader(
            "#if 1\n#define N 4\n#endif\nkernel void f(device float* x) {\n  x[N] = 1.0 + yy;\n}\n"
        )
    assert str(raised.value).startswith("program_source:5:16: error: 'yy'") or "undeclared" in str(raised.value)
    assert str(raised.value).splitlines()[1] == "  x[N] = 1.0 + yy;"


def test_address_spaces() -> None:
    """Of what they alone tell apart, one is kept."""
    out = torch.zeros(8, device="mps")
    library(DIALECT).spaces(out, torch.tensor([3.0, 1.0], device="mps"), threads=1)
    assert out[:4].tolist() == [16.0, 4.0, 21.5, 3.0]


def test_types_and_literals() -> None:
    """Floats without a suffix, halves, bfloats, wide vectors, matrices, packed vectors."""
    out = torch.zeros(6, device="mps")
    h, b = torch.zeros(1, dtype=torch.half, device="mps"), torch.zeros(1, dtype=torch.bfloat16, device="mps")
    library(DIALECT).types(out, h, b, threads=1)
    assert (h.item(), b.item()) == (torch.tensor(1 / 3).half().item(), 1.0)
    assert out.tolist() == pytest.approx([64.0, 2.718281828 + 3, 343.0, 35.0, 16.0, 65536.0])


def test_vectors_named_by_an_attribute_and_assertions() -> None:
    """`ext_vector_type` in front of a type that a template gives; `assert` comes with `metal_stdlib`, silent."""
    library = torch.mps.compile_shader(
        HEAD
        + """
template <typename T> float total(device T* in) {
  typedef __attribute__((__ext_vector_type__(4))) T T4;
  T4 both[2] = {*(device T4*)&in[0], *(device T4*)&in[4]};
  return both[0].x + both[0].w + both[1].y;
}
kernel void sums(device float* out, device half* in) {
  assert(in != out);
  out[0] = total(in);
  __attribute__((ext_vector_type(2))) float pair = {1.0, 2.0};
  out[1] = pair.x - pair.y;
}
"""
    )
    out = torch.zeros(2, device="mps")
    library.sums(out, torch.arange(8.0).half().to("mps"), threads=1)
    assert out.tolist() == [0 + 3 + 5, -1]
