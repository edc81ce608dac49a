"""Random numbers that PyTorch's own Metal kernels of torch 2.13 have drawn, recorded from them."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.usefixtures("virtual_device")


def drawn(numbers: int) -> torch.Tensor:
    """A tensor to draw into, where the seed is 42 and the offset is 3."""
    torch.mps.manual_seed(42)
    torch.empty(9, device="mps").uniform_()
    return torch.empty(numbers, device="mps")


def test_a_product_and_a_sum_are_rounded_once() -> None:
    """Each of these would be another number if the product were rounded before the sum."""
    found = drawn(40).uniform_(-2.3, 4.8)[[0, 2, 3, 4, 5, 15]]
    assert found.tolist() == [
        *(-0.8785423636436462, -0.7680580019950867, 3.611675262451172),
        *(2.8153276443481445, -0.21436773240566254, 0.545077919960022),
    ]


def test_digits_that_cancel() -> None:
    """The smallest of forty: of a difference of two numbers near 0.7 as many digits are left as on a Mac."""
    found = drawn(40).cauchy_(0.7, 1.3)
    assert found.abs().argmin().item() == 36
    assert found[36].item() == pytest.approx(0.014757116325199604, rel=1e-5)
