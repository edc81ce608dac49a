"""mps as the default device, torch's own and the gate's: contexts, modules built in place, generators, threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.data import DataLoader, TensorDataset

from anymps.device import default_device
from device.compare import assert_same, text_of

pytestmark = pytest.mark.usefixtures("mps_device")


@pytest.fixture(params=["torch", "gate"])
def default_mps(request: pytest.FixtureRequest) -> Iterator[None]:
    """mps is the default device during the test, by torch's function mode and by the gate's way without one."""
    if request.param == "gate":
        with default_device():
            yield
        return
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
def test_shuffling_needs_a_generator_on_the_device() -> None:
    """RandomSampler's own CPU generator fails under a default device; one on mps works."""
    data = TensorDataset(torch.arange(8))
    assert text_of(RuntimeError, lambda: list(DataLoader(data, shuffle=True))) == (
        "Expected a 'mps:0' generator device but found 'cpu'"
    )
    seen = [batch[0] for batch in DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator("mps"))]
    assert list(range(8)) == sorted(torch.cat(seen).tolist())


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


def test_no_mode_is_entered() -> None:
    """The gate's default device needs no function mode, and torch's functions stay the objects that they are."""
    before = torch.zeros
    with default_device():
        assert _get_current_function_mode_stack() == []
        assert torch.zeros is before
        assert before(2).is_mps
    assert not torch.zeros(2).is_mps
    assert torch.get_default_device() == torch.device("cpu")


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")  # torch 2.11
def test_every_maker_of_torch_is_reached() -> None:
    """Whatever torch's own mode gives a device to gets it, positional and keyword arguments stay, None is no device."""
    coordinates = [[0, 1], [1, 0]]
    with default_device():
        made = [
            torch.full((2,), 3.0),
            torch.full(size=(2,), fill_value=3.0, device=None),
            torch.eye(2, dtype=torch.float16),
            torch.sparse_coo_tensor(coordinates, [1.0, 2.0], (2, 2), check_invariants=True),
            torch.hann_window(4),
            torch.fft.fftfreq(4),
            torch.tril_indices(2, 2),
            torch.randint(3, (2,)),
            torch.asarray([1.0]),
            torch.scalar_tensor(1.0),
        ]
    assert [tensor.device.type for tensor in made] == ["mps"] * len(made)
    assert made[0].tolist() == made[1].tolist() == [3.0, 3.0]
    assert made[2].dtype == torch.float16


def test_an_inner_device_wins_and_ends() -> None:
    """`with torch.device` and `torch.set_default_device` in the block hold as they do under torch's own default."""
    with default_device():
        with torch.device("cpu"):
            assert not torch.zeros(1).is_mps
            with torch.device("meta"):
                assert torch.zeros(1).is_meta
        assert torch.zeros(1).is_mps
        torch.set_default_device("cpu")
        assert not torch.zeros(1).is_mps
    assert torch.get_default_device() == torch.device("cpu")
    with default_device():
        assert torch.zeros(1).is_mps


def test_another_thread_has_its_own_default() -> None:
    """A thread begun in the block makes CPU tensors, as under torch's own default device."""
    made: list[torch.Tensor] = []
    with default_device():
        thread = threading.Thread(target=lambda: made.append(torch.zeros(1)))
        thread.start()
        thread.join()
    assert [tensor.device.type for tensor in made] == ["cpu"]


def test_errors_of_the_makers_stay() -> None:
    """Wrong arguments are refused as those of a call that names a device, and the next call has its device."""
    cpu = torch.device("cpu")
    plain = [
        text_of(TypeError, torch.zeros, "x", device=cpu),
        text_of(TypeError, torch.zeros, 1, nothing=2, device=cpu),
    ]
    with default_device():
        found = [text_of(TypeError, torch.zeros, "x"), text_of(TypeError, torch.zeros, 1, nothing=2)]
        assert [text.splitlines()[0] for text in found] == [text.splitlines()[0] for text in plain]
        assert torch.zeros(1).is_mps
