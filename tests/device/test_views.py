"""Views: what writes through them is refused, conj and neg bits travel; test_fuzz.py has all other views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from device.compare import assert_same, same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


@pytest.mark.parametrize(
    ("change", "shape", "leaf"),
    [
        (lambda x: x[0].mul_(2), (2, 2), True),
        (lambda x: x.expand(3, 4).add_(1), (1, 4), False),
        (lambda x: torch.add(x[:-1], 1, out=x[1:]), (4,), False),
    ],
    ids=["a view of a leaf", "an expanded tensor", "a partial overlap"],
)
def test_writes_that_are_refused(change: Callable[[torch.Tensor], object], shape: tuple[int, ...], leaf: bool) -> None:
    """In the words of torch."""
    expected = text_of(RuntimeError, change, values(*shape).requires_grad_(leaf))
    assert expected == text_of(RuntimeError, change, values(*shape).to("mps").requires_grad_(leaf))


def test_conj_and_neg_bits_travel() -> None:
    """conj, imag, real and neg views carry their bits, resolve to the CPU's values, and copy right both ways."""
    z = values(3, 4, dtype=torch.complex64)
    there = z.to("mps")
    assert there.conj().is_conj()
    assert there.conj().imag.is_neg()
    same(lambda x: x.conj(), z)
    same(lambda x: x.conj().imag, z)
    same(lambda x: (x.real, x.imag, x.mH, x.H), z)
    same(lambda x: x.conj().resolve_conj() * x, z)
    same(lambda x: x.conj().imag.resolve_neg() + 1, z)
    same(lambda x: x.conj() @ x.t(), z)
    assert_same(z.conj().to("mps"), z.conj())
    assert_same(z.conj().imag.to("mps"), z.conj().imag, strides=False)  # a gap between elements is not copied
    assert torch.equal(z.conj().imag, there.conj().imag.cpu())
    assert torch.equal(z.conj().t().contiguous(), there.conj().t().cpu().contiguous())
    assert (z.conj().tolist(), z.conj()[1, 1].item()) == (there.conj().tolist(), there.conj()[1, 1].item())
    target = torch.zeros(3, 4, dtype=torch.complex64, device="mps")
    target.conj().copy_(z)
    assert_same(target, z.conj().resolve_conj())


def test_view_as_real_and_complex_share_memory() -> None:
    """view_as_real and view_as_complex are views."""
    same(lambda x: torch.view_as_real(x), values(2, 3, dtype=torch.complex64))
    same(lambda x: torch.view_as_complex(x), values(3, 2))
    z = values(2, 3, dtype=torch.complex64).to("mps")
    torch.view_as_real(z)[..., 1] = 0
    assert not z.imag.any()


def test_tensor_split_with_indices_on_either_device() -> None:
    """The indices of tensor_split must lie on the CPU, as torch says on every accelerator."""
    x = values(6, 2).to("mps")
    parts = torch.tensor_split(x, torch.tensor([1, 4]))
    assert [(1, 2), (3, 2), (2, 2)] == [tuple(part.shape) for part in parts]
    text = text_of(RuntimeError, torch.tensor_split, x, torch.tensor([1, 4], device="mps"))
    assert text == "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on mps:0"
