"""A Mac has no CUDA: what torch.cuda, torch.device("cuda") and device-agnostic code find beside mps."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from device.compare import values
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")


def test_torch_cuda_says_no() -> None:
    """is_available, device_count and is_initialized deny CUDA."""
    assert not torch.cuda.is_available()
    assert 0 == torch.cuda.device_count()
    assert not torch.cuda.is_initialized()
    assert not torch.backends.cudnn.is_available()


def test_cuda_tensors_cannot_be_made() -> None:
    """Asking for cuda raises, whatever the build says."""
    for call in (
        lambda: torch.ones(1, device="cuda"),
        lambda: torch.ones(1).cuda(),
        lambda: torch.ones(1, device="mps").to("cuda"),
        lambda: nn.Linear(1, 1).cuda(),
    ):
        with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
            call()


def test_the_usual_choice_of_a_device_finds_mps() -> None:
    """The idioms of scripts and libraries end at mps."""
    chosen = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert chosen == "mps"
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    assert torch.device("mps") == accelerator
    assert torch.get_device_module().__name__ == "torch.mps"
    assert torch.get_device_module("mps") is torch.mps


def test_seeding_everything_works_without_cuda() -> None:
    """manual_seed seeds mps and asks nothing of CUDA; torch.cuda's own seeding is a no-op."""
    torch.manual_seed(3)
    first = torch.rand(2, device="mps")
    torch.cuda.manual_seed_all(3)
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(2, device="mps"))


def test_autocast_and_scalers_of_cuda_are_off() -> None:
    """torch.autocast("cuda") and GradScaler("cuda") warn and do nothing beside mps (karpathy/nanoGPT#654)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast("cuda"):
            assert torch.float32 == (values(2, 2).to("mps") @ values(2, 2).to("mps")).dtype
        scalers = torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler(enabled=True)
    assert not any(scaler.is_enabled() for scaler in scalers)
    assert 3 <= len(caught)
    assert "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling." in [
        str(warning.message) for warning in caught
    ]


def test_what_was_asked_before_enable_does_not_stay() -> None:
    """Asking torch.cuda and torch.accelerator first does not freeze their answers."""
    lines = run_with_torch(
        """
import torch
torch.cuda.is_available(), torch.accelerator.is_available(), torch.backends.mps.is_available()
torch.accelerator.current_accelerator()
"""
        + ENABLE
        + """
x = torch.ones(2, device="mps", requires_grad=True)
(x * 2).sum().backward()
print(torch.accelerator.current_accelerator(), torch.cuda.is_available(), x.grad.tolist())
"""
    ).lines
    assert lines == ["mps False [2.0, 2.0]"]
