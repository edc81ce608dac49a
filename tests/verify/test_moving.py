"""Inputs on their way to the device: the same bits on every machine, and all that names the CPU named mps."""

from __future__ import annotations

import math

import pytest
import torch

from anymps.verify.cases._samples import portable, to_mps


def test_eleven_bits_of_fraction_are_kept() -> None:
    """Of float32, to the nearest; a last digit more or less is gone, infinity and NaN stay."""
    step = 2.0**-11
    given = [1.0, 1 + step, 1 + step / 4, 1 + step * 3 / 4, 1 + step / 2, -1 - step / 4, 0.0, math.inf, -math.inf]
    expected = [1.0, 1 + step, 1.0, 1 + step, 1 + step, -1.0, 0.0, math.inf, -math.inf]
    assert portable(torch.tensor(given)).tolist() == expected
    third = torch.tensor([1 / 3, -10 / 3, 1e30])
    assert torch.equal(portable(third), portable(torch.nextafter(third, torch.zeros(()))))
    assert portable(torch.tensor([math.nan])).isnan().all()
    largest = torch.tensor([torch.finfo(torch.float32).max])
    assert torch.equal(portable(largest), largest)  # rounded up it would be infinite


def test_complex_numbers_are_two_of_them() -> None:
    """Whatever view they are."""
    step = 2.0**-11
    x = torch.tensor([complex(1 + step / 4, 2 + step / 4)])
    assert portable(x).tolist() == [1 + 2j]
    assert portable(x.conj()).tolist() == [1 - 2j]
    assert portable(torch._neg_view(x)).tolist() == [-1 - 2j]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool])
def test_other_dtypes_stay_as_they_are(dtype: torch.dtype) -> None:
    """The same tensor."""
    x = torch.ones(3, dtype=dtype)
    assert portable(x) is x


def test_what_has_no_bits_to_round_stays_as_it_is() -> None:
    """Numbers, empty, sparse and meta tensors."""
    for one in (3, "cpu", None, torch.empty(0), torch.ones(2, 2).to_sparse(), torch.ones(2, device="meta")):
        assert portable(one) is one


def test_the_layout_stays() -> None:
    """Of a transposed tensor, of one with gaps, and of an expanded one, which stays whole."""
    x = torch.linspace(0, 1, 24)
    for view in (x.view(4, 6).t(), x[::2], x.view(4, 6)[:, ::3]):
        made = portable(view)
        assert made.stride() == view.stride()
        assert torch.equal(made, portable(view.contiguous()))
        assert made.data_ptr() != view.data_ptr()
    expanded = x[:1].expand(3)
    assert portable(expanded) is expanded


@pytest.mark.usefixtures("virtual_device")
def test_what_names_the_cpu_names_mps() -> None:
    """Tensors, devices and names; anything else stays."""
    assert to_mps(torch.ones(2)).device.type == "mps"
    assert to_mps("cpu") == "mps"
    assert to_mps(torch.device("cpu")) == torch.device("mps")
    for one in (3, "sum", None, torch.device("meta")):
        assert to_mps(one) is one
    meta = torch.ones(2, device="meta")
    assert to_mps(meta) is meta


@pytest.mark.usefixtures("virtual_device")
def test_leaves_that_can_have_a_gradient() -> None:
    """Floating-point and complex ones, where one is asked for; what was one on the CPU is none by itself."""
    for dtype, able in ((torch.float32, True), (torch.complex64, True), (torch.int32, False), (torch.bool, False)):
        given = torch.ones(2, dtype=dtype).requires_grad_(able)
        assert to_mps(given, gradient=True).requires_grad is able
        assert to_mps(given, gradient=True).is_leaf
        assert not to_mps(given).requires_grad
