"""Functions of vectors: each element is what the function of a number gives; unused ones are not compiled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from anymps.metal.compilation._compiler import find_compiler
from anymps.metal.compilation._headers import precompiled

pytestmark = pytest.mark.usefixtures("virtual_device")

ONE = ("exp", "tanh", "sqrt", "fabs", "abs", "sign", "saturate", "isnan", "isinf", "signbit")
TWO = ("min", "max", "fmod", "copysign", "step", "atan2")
THREE = ("fma", "clamp", "mix")


def _source(name: str, width: int) -> str:
    """A kernel that writes, for each function, the vector's elements and then those of the numbers."""
    lines = []
    for count, functions in ((1, ONE), (2, TWO), (3, THREE)):
        given = ("a", "b", "c")[:count]
        for function in functions:
            lines.append(f"{{ const auto r = {function}({', '.join(given)});")
            for i in range(width):
                numbers = ", ".join(f"{v}[{i}]" for v in given)
                lines.append(f"out[at++] = float(r[{i}]); out[at++] = float({function}({numbers}));")
            lines.append("}")
    lines.append("{ const auto r = select(a, b, a < b);")
    lines += [
        f"out[at++] = float(r[{i}]); out[at++] = float(select(a[{i}], b[{i}], a[{i}] < b[{i}]));" for i in range(width)
    ]
    lines.append("}")
    vector = f"{name}{width}"
    fill = "\n".join(
        f"a[{i}] = {name}(x[{i}]); b[{i}] = {name}(x[{i + 4}]); c[{i}] = {name}(x[{i + 8}]);" for i in range(width)
    )
    body = "\n".join(lines)
    return (
        "#include <metal_stdlib>\nusing namespace metal;\n"
        f"kernel void f(device float* out, constant float* x) {{ {vector} a, b, c; {fill} int at = 0;\n{body} }}"
    )


@pytest.mark.parametrize(("name", "width"), [("float", 4), ("half", 3), ("bfloat", 2)])
def test_a_function_of_a_vector_is_that_of_its_elements(name: str, width: int) -> None:
    values = [-1.5, 0.25, float("nan"), float("inf"), 0.75, -2.5, 1.25, 3.0, 0.5, 0.125, 2.0, 1.0]
    out = torch.full((2 * width * (len(ONE) + len(TWO) + len(THREE) + 1),), -77.0, device="mps")
    torch.mps.compile_shader(_source(name, width)).f(out, torch.tensor(values, device="mps"), threads=1)
    pairs = out.cpu().view(-1, 2)
    assert not (pairs == -77.0).any()
    torch.testing.assert_close(pairs[:, 0], pairs[:, 1], rtol=0, atol=0, equal_nan=True)


def test_an_empty_shader_compiles_few_functions(tmp_path: Path) -> None:
    """What the headers instantiate is compiled again with every kernel: it was half of the time of a small one."""
    compiler = find_compiler()
    if compiler.is_clang:
        pytest.skip("clang does not write which functions it compiled")
    (tmp_path / "empty.cpp").write_text("")
    dump = tmp_path / "functions.txt"
    answer = compiler.run(
        [
            *compiler.shader_flags(),
            *precompiled(compiler),
            *("-c", f"-fdump-tree-original={dump}", str(tmp_path / "empty.cpp"), "-o", str(tmp_path / "empty.o")),
        ]
    )
    assert answer.returncode == 0, answer.stderr
    assert len(re.findall(r"^;; Function", dump.read_text(), re.MULTILINE)) < 320
