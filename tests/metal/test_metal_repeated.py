"""Launches that repeat one of their signature get the bytes that a first launch gets, and are refused as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anymps.metal import _library
from metal.forms import error_of
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

BYTES = (
    HEAD
    + """
kernel void bytes(device uchar* out, constant uchar* given, uint i [[thread_position_in_grid]]) { out[i] = given[i]; }
kernel void sums(device float* out, device float* const* all, uint i [[thread_position_in_grid]]) {
  out[i] = all[0][i] + all[1][i];
  all[1][i] = 5;
}
kernel void astray(device float* out, device float* const* all, constant int& n) { all[0][n] = 1; out[0] = n; }
"""
)
SIZE = 40


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The calls whose arguments were bound."""
    calls: list[object] = []
    bind: Callable[..., Any] = _library.bind_arguments
    monkeypatch.setattr(_library, "bind_arguments", lambda *args: calls.append(args) or bind(*args))
    return calls


def _bytes(kernel: Any, value: Any, casts: Any) -> list[int]:
    """The first bytes of what a kernel reads in the place of a number or a list."""
    out = torch.zeros(SIZE, dtype=torch.uint8, device="mps")
    kernel(out, value, arg_casts=casts)
    return out.tolist()


@pytest.mark.parametrize(
    ("casts", "values"),
    [
        (None, [True, False]),
        (None, [7, -7, (1 << 63) - 1, -(1 << 40)]),
        (None, [0.5, -0.0, 0.0, -math.nan, 1e-45]),
        ("int32", [5, -5]),
        ({1: "int16"}, [5, -5]),
        ({1: "uint8"}, [True, False]),
    ],
)
def test_numbers_arrive_as_at_first(bound: list[object], casts: Any, values: list[Any]) -> None:
    """Bit by bit what a kernel gets that has not been launched before, though nothing is bound again."""
    expected = [_bytes(torch.mps.compile_shader(BYTES).bytes, value, casts) for value in values]  # each launched once
    kernel = torch.mps.compile_shader(BYTES).bytes
    _bytes(kernel, values[-1], casts)
    bound.clear()
    assert [_bytes(kernel, value, casts) for value in values] == expected
    assert bound == []


@pytest.mark.parametrize(
    ("casts", "first", "later"),
    [
        ({1: "int32"}, 1, 1 << 40),  # wraps
        ({1: "uint8"}, [1, 2], [-1, 300]),
        (None, 0.5, 1e39),
        (None, 1.0, math.inf),
        (None, [1, 2, 3], [-1, 1 << 40, 0]),
        (None, [0.5, True, 1e30], [-0.0, False, 2.0]),
        (None, [1, 2], [1.0, 2.0]),
        (None, True, 0.25),
        ({1: "int32"}, 3, 3.75),
        ({1: "fp16"}, 0.5, 70000.0),
        ({1: "fp16"}, 0.0, -0.0),
        ("bf16", 16777217, 1.00390625 + 2**-30),
    ],
)
def test_numbers_of_another_kind_are_bound_again(casts: Any, first: Any, later: Any) -> None:
    """What does not fit the packing of earlier launches arrives as it does in a first one."""
    expected = _bytes(torch.mps.compile_shader(BYTES).bytes, later, casts)
    kernel = torch.mps.compile_shader(BYTES).bytes
    for _ in range(2):
        _bytes(kernel, first, casts)
        assert _bytes(kernel, later, casts) == expected


def test_casts_of_another_launch_are_not_used() -> None:
    """The same types with other casts are another signature; casts that are none are refused."""
    kernel = torch.mps.compile_shader(BYTES).bytes
    for _ in range(2):
        assert _bytes(kernel, -1, None)[:9] == [255] * 8 + [0]
        assert _bytes(kernel, -1, "int16")[:3] == [255, 255, 0]
        assert _bytes(kernel, -1, {1: "int32"})[:5] == [255, 255, 255, 255, 0]
        assert _bytes(kernel, -1, {0: "int32"})[:9] == [255] * 8 + [0]
        with pytest.raises(RuntimeError, match="Unable to cast Python instance of type <class 'int'>"):
            _bytes(kernel, 1 << 63, None)
        with pytest.raises(RuntimeError, match=r"^Unsupported cast instruction int3$"):
            _bytes(kernel, -1, "int3")
        with pytest.raises(RuntimeError, match=r"^Unexpected caster arg type int$"):
            _bytes(kernel, -1, 3)


def test_tables_hold_the_tensors_of_this_call(bound: list[object]) -> None:
    """Lists of tensors and parameters, whose addresses are new each time; one on the CPU is refused each time."""
    kernel = torch.mps.compile_shader(BYTES).sums
    for turn in range(3):
        one = torch.full((3,), float(turn), device="mps")
        other = torch.nn.Parameter(one.clone())
        out = torch.zeros(3, device="mps")
        kernel(out, [one, other])
        assert (out.tolist(), other.tolist()) == ([2.0 * turn] * 3, [5.0] * 3)
    assert len(bound) == 1
    with pytest.raises(RuntimeError, match=r"^Passed CPU tensor to MPS op$"):
        kernel(out, [one, torch.zeros(3)])


def test_a_stray_write_through_a_table_is_told_of_later_launches() -> None:
    """The tensors of a table may all be written."""
    kernel = torch.mps.compile_shader(BYTES).astray
    out, table = torch.zeros(1, device="mps"), [torch.zeros(4, device="mps")]
    for number in (0, 1):
        kernel(out, table, number, threads=1, arg_casts={2: "int32"})
    assert error_of(kernel, out, table, 4, threads=1, arg_casts={2: "int32"}) == (
        "anymps: the Metal kernel 'astray' wrote 4 bytes past the end of argument 1, starting at byte 16 of 16. On a "
        "Mac this is not caught and overwrites other data; ANYMPS_CHECK_SHADERS=all names the line of the kernel"
    )
