"""The functions of Metal's library over their whole range, beside double precision and Python's integers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from metal_shaders import HEAD, library

pytestmark = pytest.mark.usefixtures("virtual_device")

ANY = (-3e38, -1e30, -2e9, -1e3, -9.0, 9.0, 1e3, 2e9, 1e30, 3e38)
# Name: where it is tried, and how many ulp it may be off. Metal allows 4, and more for some.
ONE: dict[str, tuple[tuple[float, ...], int]] = {
    "exp": ((-3e38, -1e3, -106.0, -86.0, 90.0, 1e3, 3e38), 3),
    "exp2": ((-3e38, -1e3, -152.0, -124.0, 130.0, 1e3, 3e38), 3),
    "log": ((0.0, 2.0, 1e30), 3),
    "log2": ((0.0, 2.0, 1e30), 3),
    "log10": ((0.0, 2.0, 1e30), 3),
    "sin": ((-1e15, -1e12, -2e9, -1e6, -10.0, 10.0, 1e6, 2e9, 1e12, 1e15), 3),
    "cos": ((-1e15, -1e12, -2e9, -1e6, -10.0, 10.0, 1e6, 2e9, 1e12, 1e15), 3),
    "tan": ((-1e15, -2e9, -10.0, 10.0, 2e9, 1e15), 3),
    "asin": ((-1.0, 1.0), 3),
    "acos": ((-1.0, 1.0), 3),
    "atan": (ANY, 3),
    "sinh": ((-80.0, -1.0, 1.0, 80.0), 3),
    "cosh": ((-80.0, -1.0, 1.0, 80.0), 3),
    "tanh": (ANY, 3),
    "asinh": (ANY, 3),
    "acosh": ((1.0, 2.0, 1e30), 3),
    "atanh": ((-1.0, 1.0), 3),
    "sqrt": ((0.0, 2.0, 1e38), 0),
    "rsqrt": ((0.0, 2.0, 1e38), 2),
    "floor": (ANY, 0),
    "ceil": (ANY, 0),
    "trunc": (ANY, 0),
    "rint": (ANY, 0),
    "round": (ANY, 0),
    "fabs": (ANY, 0),
    "sign": (ANY, 0),
}
SPECIAL = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 1e-30, math.inf, -math.inf, math.nan)
OWN = {"rint": torch.round, "fabs": torch.abs, "round": lambda x: x.sign() * (x.abs() + 0.5).floor()}


def _spread(places: tuple[float, ...]) -> torch.Tensor:
    parts = [torch.linspace(a, b, 4001, dtype=torch.float64) for a, b in pairwise(places)]
    return torch.cat([*parts, torch.tensor(SPECIAL, dtype=torch.float64)]).float()


NUMBERS = HEAD + "".join(
    f"kernel void of_{name}(device const float* x, device float* out, uint i [[thread_position_in_grid]])"
    f" {{ out[i] = {name}(x[i]); }}\n"
    for name in ONE
)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name: str) -> None:
    """Each is as near to the true value as Metal says, for infinity, NaN and zero, too."""
    places, ulps = ONE[name]
    x = _spread(places)
    out = torch.zeros_like(x, device="mps")
    getattr(library(NUMBERS), f"of_{name}")(x.to("mps"), out, threads=len(x))
    wide = x.double()
    expected = OWN.get(name, getattr(torch, name, None))(wide)
    if name == "round":
        expected = torch.where(wide.isinf(), wide, expected)
    if name == "sign":
        expected = torch.where(wide.isnan(), 0.0, expected)
    got, near = out.cpu().double(), expected.float()
    step = (torch.nextafter(near.abs(), torch.tensor(math.inf)) - near.abs()).double()
    same = (got == near.double()) | (got.isnan() & near.isnan())
    off = torch.where(same, 0.0, (got - expected).abs() / step)
    worst = int(off.argmax())
    assert off[worst] <= ulps, (x[worst].item(), got[worst].item(), expected[worst].item())


def test_sines_of_huge_numbers_stay_within_one() -> None:
    """Where a float has no digits behind the point any more, sin and cos are still numbers that they can be."""
    x = torch.tensor([1e16, -1e20, 3e38, -3e38], device="mps")
    sin, cos = torch.zeros(4, device="mps"), torch.zeros(4, device="mps")
    library(NUMBERS).of_sin(x, sin, threads=4)
    library(NUMBERS).of_cos(x, cos, threads=4)
    assert sin.abs().max().item() <= 1 and cos.abs().max().item() <= 1


INTEGERS = {
    "char": torch.int8,
    "uchar": torch.uint8,
    "short": torch.int16,
    "ushort": torch.uint16,
    "int": torch.int32,
    "uint": torch.uint32,
    "long": torch.int64,
    "ulong": torch.uint64,
}
PAIRS = ("min(x, y)", "max(x, y)", "mulhi(x, y)", "addsat(x, y)", "subsat(x, y)", "hadd(x, y)", "rhadd(x, y)")
BITS = (
    "absdiff(x, y)",
    "popcount(x)",
    "clz(x)",
    "ctz(x)",
    "reverse_bits(x)",
    "rotate(x, T(3))",
    "clamp(x, T(3), T(90))",
)
WHOLE = HEAD + "".join(
    f"kernel void of_{name}(device const {name}* a, device const {name}* b, device {name}* out,"
    " uint i [[thread_position_in_grid]]) {\n"
    f"  typedef {name} T; T x = a[i], y = b[i];\n"
    + "".join(f"  out[i * {len(PAIRS + BITS)} + {n}] = {text};\n" for n, text in enumerate(PAIRS + BITS))
    + "}\n"
    for name in INTEGERS
)


@pytest.mark.parametrize("name", INTEGERS)
def test_functions_of_integers(name: str) -> None:
    """Each gives what arithmetic without a limit gives, brought into the type as Metal says."""
    dtype = INTEGERS[name]
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    bits = dtype.itemsize * 8

    def wrapped(value: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if low < 0 and value >> (bits - 1) else value

    def expected(x: int, y: int) -> list[int]:
        raw = format(x & ((1 << bits) - 1), f"0{bits}b")
        return [
            min(x, y),
            max(x, y),
            (x * y) >> bits,
            max(low, min(high, x + y)),
            max(low, min(high, x - y)),
            (x + y) >> 1,
            (x + y + 1) >> 1,
            wrapped(abs(x - y)),
            raw.count("1"),
            bits - len(raw.lstrip("0")),
            bits - len(raw.rstrip("0")),
            wrapped(int(raw[::-1], 2)),
            wrapped(int(raw[3:] + raw[:3], 2)),
            min(max(x, 3), 90),
        ]

    values = [low, low + 1, 0, 1, 2, 37, 100, high // 2 + 1, high - 1, high, *((-1, -2, -77) if low < 0 else ())]
    pairs = [(x, y) for x in values for y in values]
    a: Any = torch.tensor([x for x, _ in pairs], dtype=dtype).to("mps")
    b: Any = torch.tensor([y for _, y in pairs], dtype=dtype).to("mps")
    out = torch.zeros(len(pairs), len(PAIRS + BITS), dtype=dtype, device="mps")
    getattr(library(WHOLE), f"of_{name}")(a, b, out, threads=len(pairs))
    for (x, y), row in zip(pairs, out.tolist(), strict=True):
        assert row == expected(x, y), (x, y)


@pytest.mark.parametrize(("name", "wins"), [("max", ">="), ("min", "<=")])
def test_c10s_max_and_min_of_all_kinds_of_floats(name: str, wins: str) -> None:
    """NaN wins and is always the same one, and of equal zeros the first; alone and in a loop of vectors."""
    shader = torch.mps.compile_shader(
        "#include <c10/metal/utils.h>\n#include <metal_stdlib>\nusing namespace metal;\n"
        "kernel void pair(device float* out, constant float* a, constant float* b, uint i [[thread_position_in_grid]]) "
        f"{{ out[i] = c10::metal::{name}(a[i], b[i]); }}\n"
        "kernel void fold(device float* out, constant float* a, constant float* b, uint i [[thread_position_in_grid]]) "
        f"{{ float r = a[i]; for (int n = 0; n < 4; ++n) r = c10::metal::{name}(r, b[4 * i + n]); out[i] = r; }}"
    )
    words = [
        0,
        1 << 31,
        1,
        0x7F800000,
        -0x800000 & 0xFFFFFFFF,
        0x7FC00000,
        0xFFC00001,
        0x7F800001,
        0x3F800000,
        0xBF800000,
    ]
    kinds = torch.tensor([word - (word >> 31 << 32) for word in words], dtype=torch.int32).view(torch.float32)
    a, b = kinds.repeat_interleave(len(kinds)), kinds.repeat(len(kinds))

    def expected(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        chosen = torch.where(first >= second if wins == ">=" else first <= second, first, second)
        return torch.where(first.isnan() | second.isnan(), torch.tensor(float("nan")), chosen)

    out = torch.zeros(len(a), device="mps")
    shader.pair(out, a.to("mps"), b.to("mps"))
    assert torch.equal(out.cpu().view(torch.int32), expected(a, b).view(torch.int32))
    rows = torch.stack([b, b.flip(0), b.roll(3), a.roll(7)], 1)
    shader.fold(out, a.to("mps"), rows.flatten().to("mps"))
    folded = a
    for column in rows.unbind(1):
        folded = expected(folded, column)
    assert torch.equal(out.cpu().view(torch.int32), folded.view(torch.int32))
