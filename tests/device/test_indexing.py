"""Indices on either device, and wrong ones; tests/conformance has what operators compute."""

from __future__ import annotations

import pytest
import torch

from device.compare import assert_same, same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


def ids(*numbers: int, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(numbers, device=like.device)


def test_indices_may_lie_on_the_cpu() -> None:
    """Indices on the CPU are moved to the indexed tensor; a mask too; written values of one element too."""
    x = values(3, 4).to("mps")
    assert_same(x[torch.tensor([2, 0])], values(3, 4)[[2, 0]])
    assert_same(x[torch.tensor([True, False, True])], values(3, 4)[[0, 2]])
    x[torch.tensor([0])] = torch.tensor(5.0)
    assert [5.0] * 4 == x[0].tolist()


def test_mps_indices_do_not_index_cpu_tensors() -> None:
    """A CPU tensor cannot be indexed with mps indices (pytorch issue 85450)."""
    text = text_of(RuntimeError, lambda: torch.ones(3)[torch.tensor([0], device="mps")])
    assert text == "indices should be either on cpu or on the same device as the indexed tensor (cpu)"


def test_wrong_indices_are_refused() -> None:
    """Wrong types, ranks and Python indices out of range raise torch's texts."""
    same(lambda x: x[torch.tensor([0.5], device=x.device)], values(3))
    same(lambda x: x[0, 0], values(3))
    same(lambda x: x[5], values(3))
    same(lambda x: x.gather(0, torch.zeros(1, dtype=torch.int32, device=x.device)), values(3))
    same(lambda x: x.index_select(2, ids(0, like=x)), values(3))
    same(lambda x: x.narrow(0, 2, 5), values(3))
