"""Dtypes that no Metal kernel of an operator has: the call says which kernel it asked for, as on a Mac."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from anymps.rules import installed_torch
from anymps.rules.texts import (
    float64_allocation,
    float64_graph,
    float64_kernel,
    missing_kernel,
    undefined_type,
    unsupported_dtype,
)
from device.compare import assert_same, text_of

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = installed_torch().version.release
FLAT = "flat_" if RELEASE >= (2, 14) else ""
UNSIGNED = {torch.uint16: "ushort", torch.uint32: "uint", torch.uint64: "ulong"}
FLOAT8 = torch.float8_e5m2
NAMED = "Float8_e5m2"
Call = Callable[[torch.Tensor], object]


def four(dtype: torch.dtype) -> torch.Tensor:
    """0 to 3 on mps, moved there as they lie."""
    return torch.arange(4).to(dtype).to("mps")


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize(
    ("call", "kernel", "first", "last"),
    [
        (lambda x: x + x, "add_dense_{0}_{0}", (2, 11), (2, 15)),
        (lambda x: x.add_(x), "add_dense_{0}_{0}", (2, 11), (2, 15)),
        (lambda x: x.view(2, 2) - x[:2], "sub_dense_broadcast_{0}_{0}", (2, 11), (2, 15)),
        (lambda x: x * 2, "mul_dense_scalar_cast_{0}_{0}", (2, 13), (2, 15)),
        (lambda x: x * 2, "mul_dense_scalar_cast_{0}", (2, 11), (2, 12)),
        (lambda x: x / x, "div_true_dense_float_{0}", (2, 11), (2, 15)),
        (lambda x: x // 2, "div_floor_dense_scalar_cast_{0}_{0}", (2, 13), (2, 15)),
        (lambda x: x == x, "eq_dense_bool_{0}", (2, 13), (2, 14)),
        (lambda x: x > 1, "gt_dense_scalar_cast_bool_{0}", (2, 13), (2, 14)),
        (lambda x: torch.equal(x, x), "ne_dense_bool_{0}", (2, 13), (2, 14)),
        (lambda x: x.abs(), "abs_dense_castout_{0}", (2, 13), (2, 15)),
        (lambda x: x.abs(), "abs_dense_{0}_{0}", (2, 11), (2, 12)),
        (lambda x: x.exp(), "exp_dense_castout_{0}", (2, 13), (2, 15)),
        (lambda x: x[::2].sqrt(), "sqrt_strided_castout_{0}", (2, 13), (2, 15)),
        (lambda x: x.sum(), f"sum_reduction_{FLAT}{{0}}_long", (2, 13), (2, 15)),
        (lambda x: x.any(), f"any_reduction_{FLAT}{{0}}_uchar", (2, 13), (2, 15)),
        (lambda x: x.max(), f"max_reduction_{FLAT}{{0}}_{{0}}", (2, 13), (2, 15)),
        (lambda x: x.gather(0, torch.tensor([0], device="mps")), "gather_dense_{0}_long", (2, 13), (2, 15)),
        (lambda x: x.view(2, 2).tril(), "tril_int_{0}", (2, 11), (2, 15)),
        (lambda x: torch.eye(3, dtype=x.dtype, device="mps"), "eye_{0}", (2, 12), (2, 15)),
        (lambda x: x.view(2, 2) @ x.view(2, 2), "matmul_{0}", (2, 11), (2, 15)),
        (lambda x: x.view(2, 2) @ x[:2], "matmul_{0}", (2, 11), (2, 15)),
        (lambda x: torch.addmm(x[:2], x.view(2, 2), x.view(2, 2)), "addmm_{0}", (2, 11), (2, 15)),
        (lambda x: x.view(1, 2, 2) @ x.view(1, 2, 2), "naive_bmm_{0}", (2, 11), (2, 15)),
        (lambda x: torch.baddbmm(*3 * [x.view(1, 2, 2)]), "naive_baddbmm_{0}", (2, 11), (2, 14)),
        (lambda x: torch.addbmm(x[:2], *2 * [x.view(1, 2, 2)]), "naive_addbmm_{0}", (2, 11), (2, 14)),
    ],
)
def test_an_unsigned_integer_without_a_kernel(
    dtype: torch.dtype, call: Call, kernel: str, first: tuple[int, int], last: tuple[int, int]
) -> None:
    """uint16, uint32, uint64: the name is made of how memory lies and of the dtypes."""
    if not first <= RELEASE <= last:
        pytest.skip("another release asks for another kernel, or has this one")
    assert text_of(RuntimeError, call, four(dtype)) == missing_kernel(kernel.format(UNSIGNED[dtype])).text


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32])
def test_what_needs_no_kernel_of_an_unsigned_integer_goes_on(dtype: torch.dtype) -> None:
    """Copies, casts, views, fills, sorts, and arithmetic with floats, whose kernels read any integer."""
    x, host = four(dtype), torch.arange(4).to(dtype)
    assert_same(x.clone().view(2, 2)[1], torch.tensor([2, 3]).to(dtype))
    assert_same(x.float(), torch.arange(4.0))
    assert_same(torch.zeros(2, dtype=dtype, device="mps"), torch.zeros(2, dtype=dtype))
    assert_same(torch.cat([x, x]), torch.cat([host, host]))
    assert_same(x.flip(0) if RELEASE >= (2, 15) else x, host.long().flip(0).to(dtype) if RELEASE >= (2, 15) else host)
    assert_same(x.float() + x, host.float() * 2)
    assert_same(x + x.float(), host.float() * 2)
    assert_same(x / 2, host / 2)
    assert_same(x[torch.tensor([3], device="mps")], torch.tensor([3]).to(dtype))
    assert_same(x.index_select(0, torch.tensor([2], device="mps")), torch.tensor([2]).to(dtype))
    assert_same(x.masked_fill(x.float() > 1, 7), torch.tensor([0, 1, 7, 7]).to(dtype))
    assert (x[:0] == x[:0]).numel() == 0


def test_large_uint64_is_kept_bit_by_bit() -> None:
    """Kernels that go by the size of an element."""
    x = torch.tensor([2**64 - 1, 5], dtype=torch.uint64).to("mps")
    assert x.index_select(0, torch.tensor([0], device="mps")).tolist() == [2**64 - 1]
    assert x.masked_fill(torch.tensor([False, True], device="mps"), 3).tolist() == [2**64 - 1, 3]


@pytest.mark.parametrize(
    ("call", "since"),
    [
        (lambda x: x + x, (2, 11)),
        (lambda x: x * 2, (2, 11)),
        (lambda x: x.sum(), (2, 13)),
        (lambda x: x.abs(), (2, 11)),
        (lambda x: x.fill_(1), (2, 12)),
        (lambda x: torch.cat([x, x]), (2, 11)),
        (lambda x: x.any(), (2, 13)),
        (lambda x: torch.ones_like(x), (2, 12)),
    ],
)
def test_an_8_bit_float_has_no_name_in_metal(call: Call, since: tuple[int, int]) -> None:
    """Whatever builds a kernel's name of it. Before that, MPSGraph computed it, and did not know the dtype."""
    if since > RELEASE:
        assert text_of(TypeError, call, four(FLOAT8)) == unsupported_dtype(NAMED).text
    else:
        assert text_of(RuntimeError, call, four(FLOAT8)) == undefined_type(NAMED).text


def test_an_8_bit_float_has_no_name_in_the_graph() -> None:
    """Of operators that MPSGraph computes."""
    assert text_of(TypeError, four(FLOAT8).view(2, 2).mm, four(FLOAT8).view(2, 2)) == unsupported_dtype(NAMED).text


@pytest.mark.parametrize("dtype", [*UNSIGNED, FLOAT8])
def test_a_layer_asks_for_floats_of_its_own(dtype: torch.dtype) -> None:
    """The check of `linear` and `addr` comes before any kernel's name is made."""
    x = four(dtype).view(2, 2)
    said = "MPS device does not support linear for non-float inputs"
    assert text_of(RuntimeError, torch.nn.functional.linear, x, x) == said
    assert text_of(RuntimeError, torch.addr, x, x[0], x[0]) == "MPS device does not support addr for non-float input"


@pytest.mark.parametrize("dtype", [torch.uint16, FLOAT8])
def test_sizes_and_devices_are_checked_before_a_kernel_is_looked_for(dtype: torch.dtype) -> None:
    """By the checks that a structured operator has apart from its kernels, and by those before them."""
    x, host = four(dtype), torch.arange(4).to(dtype)
    assert text_of(RuntimeError, torch.add, x, x[:3]) == (
        "The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 0"
    )
    square = x.view(2, 2)
    assert text_of(RuntimeError, square.mm, x[None]) == "mat1 and mat2 shapes cannot be multiplied (2x2 and 1x4)"
    assert text_of(IndexError, x.sum, 3) == "Dimension out of range (expected to be in range of [-1, 0], but got 3)"
    elsewhere = text_of(RuntimeError, torch.ones(2, 2, device="mps").mm, torch.ones(2, 2))
    assert text_of(RuntimeError, square.mm, host.view(2, 2)) == elsewhere
    assert x.tolist() == [0, 1, 2, 3]


def test_truth_values_have_no_product() -> None:
    """They go the way of whole numbers, and no kernel has them."""
    x = torch.ones(2, 2, dtype=torch.bool, device="mps")
    assert text_of(RuntimeError, x.mm, x) == missing_kernel("matmul_bool").text


def test_what_needs_no_kernel_of_an_8_bit_float_goes_on() -> None:
    """How checkpoints in float8 are moved and kept."""
    x = four(FLOAT8)
    assert x.cpu().float().tolist() == [0, 1, 2, 3]
    assert x.clone().view(torch.uint8).tolist() == torch.arange(4).to(FLOAT8).view(torch.uint8).tolist()
    assert x.view(2, 2)[1].cpu().float().tolist() == [2, 3]
    assert torch.zeros(2, dtype=FLOAT8, device="mps").zero_().cpu().float().tolist() == [0, 0]
    assert torch.empty(0, dtype=FLOAT8, device="mps").abs().numel() == 0


def test_float64_reached_by_a_view() -> None:
    """Nothing is allocated for the view; what comes after it says so."""
    x = torch.ones(8, device="mps").view(torch.float64)
    assert text_of(TypeError, x.abs) == float64_allocation().text
    assert text_of(RuntimeError, x.add_, 1) == float64_kernel().text
    if RELEASE >= (2, 12):
        assert text_of(RuntimeError, x.fill_, 1) == undefined_type("Double").text
    assert text_of(TypeError, x.clamp_ if RELEASE < (2, 10) else x.sign_) == float64_graph().text
    if RELEASE >= (2, 13):
        assert text_of(RuntimeError, x.eq, x) == undefined_type("Double").text


def test_complex128_is_moved_and_no_more() -> None:
    """`empty_strided` makes it, so `.to` does; kernels have no name for it, and those by size end at 64 bits."""
    x = torch.ones(4, dtype=torch.complex128).to("mps")
    at = torch.tensor([0], device="mps")
    assert x.cpu().tolist() == [1, 1, 1, 1]
    assert text_of(RuntimeError, x.__getitem__, at) == "Unsupported data type: Undefined"
    assert text_of(RuntimeError, x.index_put_, (at,), x[:1]) == "Unsupported data type: Undefined"
    if RELEASE >= (2, 13):
        assert text_of(RuntimeError, x.eq, x) == undefined_type("ComplexDouble").text
        assert text_of(RuntimeError, x.fill_, 1) == undefined_type("ComplexDouble").text
        assert text_of(RuntimeError, x.scatter_, 0, at, x) == undefined_type("ComplexDouble").text
