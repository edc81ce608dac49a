"""What stands for a tensor while a kernel computes serves the next call too, and shows nothing of the call before."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.usefixtures("mps_device")


def test_inference_and_training_in_turn() -> None:
    """A buffer made in inference mode and one made outside serve in both, and versions count on."""
    outside = torch.ones(3, device="mps")
    with torch.inference_mode():
        inside = torch.ones(3, device="mps")
        assert 6.0 == (inside + outside).sum().item()
        assert inside.is_inference()
    assert 6.0 == (inside + outside).sum().item()
    weight = torch.ones(3, device="mps", requires_grad=True)
    for _ in range(2):
        (weight * outside).sum().backward()
    assert weight.grad is not None
    assert [2.0] * 3 == weight.grad.tolist()
    version = outside._version
    outside.add_(1)
    assert version + 1 == outside._version


@pytest.mark.usefixtures("virtual_device")
def test_a_kernel_that_keeps_its_argument() -> None:
    """A CPU kernel in Python may keep what it was given: it never turns into the argument of a later call."""
    kept: list[torch.Tensor] = []

    def keeping(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x.sin()

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("cosh", keeping, "CPU", allow_override=True)
        x = torch.arange(6.0, device="mps").view(2, 3)
        for part in (x, x[1:], x.t(), x[0]):
            torch.cosh(part)
        held = [tuple(each.shape) for each in kept]
        assert [(2, 3), (1, 3), (3, 2), (3,)] == held
        assert [3.0, 4.0, 5.0] == kept[1][0].tolist()
        note = object()
        kept[0].note = note
        torch.cosh(x)
        assert kept[0].note is note
        assert not hasattr(kept[-1], "note")
