"""mps as the default device: set_default_device, device contexts, modules built in place, generators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


@pytest.fixture
def default_mps() -> Iterator[None]:
    """mps is the default device during the test."""
    torch.set_default_device("mps")
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("default_mps")
def test_factories_make_mps_tensors() -> None:
    """Factories, torch.tensor and modules without a device land on mps:0; explicit devices win."""
    assert_same(torch.zeros(2), torch.zeros(2, device="cpu"))
    assert torch.tensor([1.0]).is_mps
    assert torch.arange(3).is_mps
    assert torch.rand(2).is_mps
    assert torch.linspace(0, 1, 3).is_mps
    assert torch.as_tensor([1, 2]).is_mps
    assert torch.randperm(4).is_mps
    assert torch.empty_strided((2,), (1,)).is_mps
    assert nn.Linear(2, 2).weight.is_mps
    assert torch.zeros(2, device="cpu").device.type == "cpu"
    assert torch.zeros(2, device="meta").is_meta
    assert torch.get_default_device() == torch.device("mps:0")


@pytest.mark.usefixtures("default_mps")
def test_models_train_without_naming_a_device() -> None:
    """A whole step runs where everything defaults to mps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(torch.randn(6, 4)), torch.randint(0, 2, (6,))).backward()
    optimizer.step()
    assert all(p.grad.is_mps for p in model.parameters())


@pytest.mark.usefixtures("default_mps")
def test_a_cpu_generator_is_refused() -> None:
    """A generator of the CPU does not draw mps tensors, in the backend's words."""
    generator = torch.Generator("cpu")
    text = "Expected a 'mps' device type for generator but found 'cpu'"
    assert text_of(RuntimeError, torch.rand, 2, generator=generator) == text
    assert text_of(RuntimeError, torch.randint, 3, (2,), generator=generator) == text
    assert text_of(RuntimeError, torch.randperm, 4, generator=generator) == (
        "Expected a 'mps:0' generator device but found 'cpu'"
    )


@pytest.mark.usefixtures("default_mps")
def test_shuffling_needs_a_generator_on_the_device() -> None:
    """RandomSampler's own CPU generator fails under a default device; one on mps works."""
    data = TensorDataset(torch.arange(8))
    assert text_of(RuntimeError, lambda: list(DataLoader(data, shuffle=True))) == (
        "Expected a 'mps:0' generator device but found 'cpu'"
    )
    seen = [batch[0] for batch in DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator("mps"))]
    assert list(range(8)) == sorted(torch.cat(seen).tolist())


def test_the_device_context() -> None:
    """`with torch.device("mps")` sets the default inside, nests, and restores."""
    with torch.device("mps"):
        assert torch.zeros(1).is_mps
        with torch.device("cpu"):
            assert not torch.zeros(1).is_mps
        assert nn.Conv2d(1, 1, 1).weight.is_mps
    assert not torch.zeros(1).is_mps


def test_the_default_dtype_is_read_at_each_call() -> None:
    """With float64 as default dtype the plain factories are refused; with float16 they follow."""
    try:
        torch.set_default_dtype(torch.float16)
        assert torch.float16 == torch.ones(1, device="mps").dtype
        torch.set_default_dtype(torch.float64)
        text = text_of(TypeError, torch.ones, 1, device="mps")
        assert text.startswith("Cannot convert a MPS Tensor to float64 dtype")
    finally:
        torch.set_default_dtype(torch.float32)


def test_skip_init_and_meta() -> None:
    """skip_init builds a module on mps without filling it."""
    module = torch.nn.utils.skip_init(nn.Linear, 3, 2, device="mps")
    assert module.weight.is_mps
    assert (2, 3) == module.weight.shape
    assert_same(values(2).to("mps"), values(2))
