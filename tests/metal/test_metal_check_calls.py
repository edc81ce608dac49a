"""The checker on a kernel's arguments, on unset variables, and on misaligned addresses."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from anymps.metal import take_shader_faults
from metal_shaders import HEAD
from shader_faults import compile_checked, faults_of

pytestmark = pytest.mark.usefixtures("virtual_device", "no_faults_left")

SOURCE = (
    HEAD
    + """
kernel void ints(device int* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }
kernel void bits(device uint* x, device atomic_uint* y, uint i [[thread_position_in_grid]]) { x[i] += 1; }
kernel void add(device float* x, constant float& a, uint i [[thread_position_in_grid]]) { x[i] += a; }
kernel void numbers(device float* x, constant int& a, constant uint& b, constant int* c) { x[0] = a + b + c[1]; }
kernel void halves(device half4* x, uint i [[thread_position_in_grid]]) { x[i] += 1.0h; }
kernel void spread(device float* x, constant uint& step, uint i [[thread_position_in_grid]]) { x[i * step] = 1; }
kernel void wide(device float* o, device const float* x, uint i [[thread_position_in_grid]]) {
  device const float4* v = (device const float4*)(x + 1);
  float4 s = v[i];
  o[i] = s.x + s.w;
}
kernel void packed(device float* o, device const float* x, uint i [[thread_position_in_grid]]) {
  device const packed_float4* v = (device const packed_float4*)(x + 1);
  o[i] = float4(v[i]).w;
}
kernel void sums(device float* o, constant int& n, uint i [[thread_position_in_grid]]) {
  float sum;
  for (int j = 0; j < n; ++j) sum += j;
  o[i] = sum;
}
kernel void never(device float* o, uint i [[thread_position_in_grid]]) {
  float4 sum;
  sum += o[i];
  o[i] = sum.x;
}
kernel void set(device float* o, constant int& n, uint i [[thread_position_in_grid]]) {
  float4 sum;
  sum.x = o[i];
  sum.yzw = float3(1);
  float last[4];
  for (int j = 0; j < 4; ++j) last[j] = j;
  o[i] = dot(sum, sum) + last[n % 4];
}
kernel void both(device const float* a, device const float* b, device atomic_int* o,
                 uint i [[thread_position_in_grid]]) {
  if (a[i] + b[i] < 0) atomic_fetch_add_explicit(o, 1, memory_order_relaxed);
}
"""
)


@pytest.fixture(scope="module")
def kernels() -> Any:
    """The kernels above in their checked form."""
    return compile_checked(SOURCE)


def _said(kernel: Any, *args: Any, **options: Any) -> list[tuple[str, bool]]:
    """What is found in one launch, and whether it is serious."""
    return [(fault.what, fault.serious) for fault in faults_of(kernel, *args, **options)]


def _made(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*sizes, dtype=dtype, device="mps")


@pytest.mark.parametrize(
    ("kernel", "dtype", "taken", "serious"),
    [
        ("ints", torch.int64, "int*", True),
        ("ints", torch.int16, "int*", True),
        ("ints", torch.float32, "int*", False),
        ("add", torch.int32, "float*", True),
        ("halves", torch.bfloat16, "half4*", True),
        ("halves", torch.float32, "half4*", True),
        ("bits", torch.float32, "uint*", False),
    ],
)
def test_a_tensor_of_another_dtype(kernels: Any, kernel: str, dtype: torch.dtype, taken: str, serious: bool) -> None:
    """The kernel reads its bytes as something else, and nothing on a Mac says so. The bits of a float may be meant."""
    more = {"add": (1.0,), "bits": (_made(4, dtype=torch.int32),)}.get(kernel, ())
    name = str(dtype).removeprefix("torch.")
    assert _said(getattr(kernels, kernel), _made(16, dtype=dtype), *more, threads=2) == [
        (
            f"The Metal kernel `{kernel}` takes argument 0 as `{taken}`, but the call passed a tensor of {name}: its "
            "bytes are misread.",
            serious,
        )
    ]


def test_dtypes_that_a_kernel_may_read_so(kernels: Any) -> None:
    """Integers of one width, memory as bytes, and floats behind atomics, which are compared and exchanged as bits."""
    assert _said(kernels.bits, _made(4, dtype=torch.int32), _made(4), threads=4) == []
    assert _said(kernels.ints, _made(16, dtype=torch.uint8), threads=4) == []
    assert _said(kernels.halves, _made(8, dtype=torch.float16), threads=2) == []


def test_numbers_of_another_type(kernels: Any) -> None:
    """A float for an int and the other way round, one that does not fit, and a list of numbers of another width."""
    x = _made(4)
    begin = "The Metal kernel `numbers` takes argument"
    assert _said(kernels.add, x, 1) == [
        (
            "The Metal kernel `add` takes argument 1 as `float&`, but the call passed a number of type `long`: the "
            "bytes are misread.",
            True,
        )
    ]
    assert _said(kernels.numbers, x, 2.0, 1 << 40, [1, 2], threads=1) == [
        (
            f"{begin} 1 as `int&`, but the call passed a number of type `float`: the bytes are misread.",
            True,
        ),
        (f"{begin} 2 as `uint&`, but the call passed a number of type `long`: 1,099,511,627,776 does not fit.", True),
        (
            f"{begin} 3 as `int*`, but the call passed numbers of type `long`: each has 8 bytes, but the kernel reads "
            "4 at a time.",
            True,
        ),
    ]
    fits = _made(2, dtype=torch.int32)
    assert _said(kernels.numbers, x, -2, 3, fits, threads=1) == []  # as an int of 8 bytes, whose first four it reads
    assert _said(kernels.numbers, x, 1, 2, [1, 2], threads=1, arg_casts={3: "int32"}) == []
    assert x[0].item() == 5


def test_too_many_arguments(kernels: Any) -> None:
    """A Mac ignores them; so the kernel is not called as somebody means to."""
    assert _said(kernels.add, _made(4), 1.0, 2.0, _made(1)) == [
        ("The Metal kernel `add` takes 2 buffers, but the call passed 4: argument 2 is never read.", False)
    ]


def test_a_tensor_that_is_not_contiguous(kernels: Any) -> None:
    """Unless the call names its strides, the kernel cannot know of them."""
    column = _made(8, 8)[:, 1]
    what = (
        "got a tensor that is not contiguous as argument 0, with strides (8,): it reads the storage as it lies in "
        "memory, and the call passed no strides."
    )
    assert _said(kernels.add, column, 1.0) == [(f"The Metal kernel `add` {what}", False)]
    assert _said(kernels.spread, column, 8) == []
    assert _said(kernels.spread, column, 1) == [(f"The Metal kernel `spread` {what}", False)]
    assert _said(kernels.add, _made(8, 8)[2:4], 1.0) == []


def test_a_vector_at_an_address_that_is_not_aligned(kernels: Any) -> None:
    """A packed one may lie at any multiple of its element."""
    x = torch.arange(64.0, device="mps")
    assert _said(kernels.wide, _made(8), x, threads=8) == [
        (
            "The Metal kernel `wide` reads or writes a vector at line 12, `float4 s = v[i];` at a misaligned address, "
            "not a multiple of 16: byte 4 of argument 1 (first in thread 0, group 0; 16 times in the launch).",
            True,
        )
    ]
    assert _said(kernels.packed, _made(8), x, threads=8) == []


def test_variables_that_are_never_set(kernels: Any) -> None:
    """At the line that reads them; where a branch or a loop may set them it is a warning alone."""
    (told,) = _said(kernels.sums, _made(4), 3)
    what = "The Metal kernel `sums` reads the variable `sum`, which may not have been written yet, at line"
    # The first read, as g++ 16 names it, or the last one, as g++ 12 does.
    places = ["21, `for (int j = 0; j < n; ++j) sum += j;`", "22, `o[i] = sum;`"]
    assert told in [(f"{what} {place}.", False) for place in places]
    assert _said(kernels.never, _made(4)) == [
        (
            "The Metal kernel `never` reads the variable `sum` before it is written at line 26, `sum += o[i];`.",
            True,
        )
    ]
    assert _said(kernels.set, _made(4), 3) == []


def _warned(kernel: Any, *arguments: Any, **sizes: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel(*arguments, **sizes)
    take_shader_faults()
    return [str(one.message) for one in caught]


def test_a_launch_is_told_what_is_wrong_with_its_own_arguments(kernels: Any) -> None:
    """Another type, or the same fault of another argument, has its own words; other sizes and threads are the same."""
    whole = torch.zeros(4, dtype=torch.int32, device="mps")
    taken = "The Metal kernel `add` takes argument 0 as `float*`, but the call passed a tensor of"
    for dtype in (torch.int32, torch.uint32, torch.int32):
        name = str(dtype).removeprefix("torch.")
        assert _warned(kernels.add, whole.view(dtype), 1.0) == [f"{taken} {name}: its bytes are misread."]
    out, count = torch.zeros(8, device="mps"), torch.zeros(1, dtype=torch.int32, device="mps")
    short = torch.zeros(2, device="mps")
    one, other = (_warned(kernels.both, *given, count, threads=4) for given in ((short, out), (out, short)))
    text = "The Metal kernel `both` reads past the end of argument"
    assert [[said.partition(" at line ")[0] for said in told] for told in (one, other)] == [
        [f"{text} 0"],
        [f"{text} 1"],
    ]
    strided = torch.zeros(4, 4, device="mps").t()
    apart = "The Metal kernel `both` got a tensor that is not contiguous as argument"
    told = [
        _warned(kernels.both, *given, count, threads=4)
        for given in ((strided, out), (out, strided), (strided[1:3], out))
    ]
    assert [[said.partition(", with")[0] for said in one] for one in told] == [
        [f"{apart} 0"],
        [f"{apart} 1"],
        [f"{apart} 0"],
    ]
    assert told[2] == told[0]  # in the words of the first: a program that comes by often says it once
