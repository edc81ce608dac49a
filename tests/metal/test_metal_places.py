"""Each SIMD call keeps its own place: lanes that came another way to the same function, or line, are not its lanes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

FORMS = {
    "one_line": "if (even) s = simd_sum(a); else s = simd_sum(b);",
    "two_lines": "if (even) s = simd_sum(a);\nelse s = simd_sum(b);",
    "conditional": "s = even ? simd_sum(a) : simd_sum(b);",
    "function": "if (even) s = sum(a);\nelse s = sum(b);",
    "functions": "if (even) s = twice<1>(a); else s = twice<1>(b);",
    "macro": "BOTH(even, a, b)",
    "macro_twice": "if (even) s = ONE(a); else s = ONE(b);",
    "nested": "if (even) s = sum(simd_max(sum(a) / 16)); else s = sum(simd_max(sum(b) / 16));",
    "method": "Summer m; if (even) s = m.sum(a); else s = m.sum(b);",
    "no_argument": "if (even) s = count(); else s = count() * 10;",
}
SOURCE = (
    HEAD
    + """
#define BOTH(E, A, B) { if (E) s = simd_sum(A); else s = simd_sum(B); }
#define ONE(A) simd_sum(A)
float sum(float a) { return simd_sum(a); }
template <int N> float twice(float a) { float s = sum(a); return s; }
float count() { return float(simd_sum(1)); }
struct Summer { float sum(float a) { return simd_sum(a); } };
"""
    + "".join(
        f"""
kernel void {name}(device float* o, uint i [[thread_position_in_grid]]) {{
  bool even = i % 2 == 0;
  float a = 1, b = 10, s = 0;
  {body}
  o[i] = s;
}}
kernel void {name}_in_loop(device float* o, uint i [[thread_position_in_grid]]) {{
  bool even = i % 2 == 0;
  float a = 1, b = 10, s = 0;
  for (uint j = 0; j < i % 2 + 2; ++j) {{ {body} }}
  o[i] = s + simd_sum(1.0f);
}}
"""
        for name, body in FORMS.items()
    )
)


@pytest.fixture(scope="module", params=["0", "1"], ids=["plain", "checked"])
def kernels(request: pytest.FixtureRequest) -> Any:
    """The kernels in both forms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANYMPS_CHECK_SHADERS", request.param)
        return torch.mps.compile_shader(SOURCE)


@pytest.mark.parametrize("name", FORMS)
def test_each_call_has_the_lanes_that_came_to_it(kernels: Any, name: str) -> None:
    """Sixteen lanes a branch: 16 and 160. Behind a loop of different rounds all 32 meet again."""
    out = torch.zeros(32, device="mps")
    getattr(kernels, name)(out, threads=32, group_size=32)
    assert out.tolist() == [16.0, 160.0] * 16
    getattr(kernels, f"{name}_in_loop")(out, threads=32, group_size=32)
    assert out.tolist() == [48.0, 192.0] * 16
