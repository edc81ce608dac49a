"""Storages behind mps tensors: set_, resize_, out=, .data, detach, swap, host aliases and the copies of deepcopy."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from anymps.rules import version_rules
from device.compare import assert_same, same, same_gradients, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


def test_a_storage_knows_its_device_and_size() -> None:
    """untyped_storage() is on mps:0 and holds the bytes of the tensor."""
    storage = values(3, 4).to("mps").untyped_storage()
    assert torch.device("mps:0") == storage.device
    assert 48 == storage.nbytes() == len(storage)
    assert not storage.is_cuda
    assert storage.is_mps if hasattr(storage, "is_mps") else True


def test_storages_can_be_made_copied_cloned_and_moved() -> None:
    """UntypedStorage(n, device="mps"), copy_, clone, mps() and cpu() keep the bytes."""
    made = torch.UntypedStorage(8, device="mps")
    assert (torch.device("mps:0"), 8) == (made.device, made.nbytes())
    source = torch.arange(8, dtype=torch.uint8).untyped_storage()
    made.copy_(source)
    assert list(range(8)) == made.tolist()
    assert list(range(8)) == made.cpu().tolist()
    assert list(range(8)) == source.mps().tolist()
    twin = made.clone()
    twin[0] = 7
    assert (0, 7) == (made[0], twin[0])
    assert [7, 1, 2] == torch.UntypedStorage([7, 1, 2], device="mps").tolist()
    made.fill_(3)
    assert [3] * 8 == made.tolist()
    assert [3, 3] == made[2:4].tolist()


def test_a_storage_itself_cannot_be_resized() -> None:
    """storage.resize_ knows no mps (torch/csrc/StorageMethods.cpp), which is why FSDP does not work there."""
    storage = torch.arange(4.0, device="mps").untyped_storage()
    assert text_of(RuntimeError, storage.resize_, 64) == "UntypedStorage.resize_: got unexpected device type mps"


def test_resize_keeps_elements_and_reuses_memory() -> None:
    """resize_ smaller keeps the memory; larger keeps the elements; the strides are contiguous ones."""

    def shrink(x: torch.Tensor) -> torch.Tensor:
        return x.resize_(2, 2)

    def grow(x: torch.Tensor) -> torch.Tensor:
        x.resize_(5, 5).view(-1)[12:].zero_()
        return x

    same(shrink, values(3, 4))
    same(grow, values(3, 4))
    x = values(3, 4).to("mps")
    address = x.data_ptr()
    assert address == x.resize_(2, 2).data_ptr()
    assert 48 == x.untyped_storage().nbytes()
    same(lambda t: t.resize_(2, 3, 2, 1, memory_format=torch.channels_last), values(12))
    same(lambda t, u: t.resize_as_(u), values(12), values(3, 4))
    same(lambda t: t.resize_(0), values(12))
    text = text_of(RuntimeError, lambda t: t.resize_(3), values(2).requires_grad_())
    assert text == text_of(RuntimeError, lambda t: t.resize_(3), values(2).to("mps").requires_grad_())


def test_set_shares_the_storage_of_another_tensor() -> None:
    """set_ with a tensor, a storage, a geometry and nothing does what it does on the CPU."""
    source = values(3, 4).to("mps")
    x = torch.empty(0, device="mps").set_(source)
    x[0, 0] = 42
    assert 42 == source[0, 0].item()
    y = torch.empty(0, device="mps").set_(source.untyped_storage(), 2, (2, 3), (4, 1))
    assert_same(y, source.cpu()[:, :].reshape(-1)[2:].as_strided((2, 3), (4, 1)))
    z = torch.empty(0, device="mps").set_(source.untyped_storage()[4:12])
    assert 2 == z.numel()
    assert 0 == source.set_().numel()
    wrong = torch.zeros(3).untyped_storage()
    assert "devices must match" in text_of(RuntimeError, torch.empty(0, device="mps").set_, wrong, 0, (3,), (1,))


def test_deepcopy_is_a_copy_of_its_own() -> None:
    """copy.deepcopy of an mps tensor is a clone: values, flags and gradients stay, memory is new."""
    x = values(2, 3).to("mps").requires_grad_()
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    assert_same(twin, x.cpu().detach().requires_grad_())
    assert torch.equal(x.grad, twin.grad)
    assert twin.data_ptr() != x.data_ptr()
    p = copy.deepcopy(nn.Parameter(values(2).to("mps"), requires_grad=False))
    assert isinstance(p, nn.Parameter)
    assert not p.requires_grad
    text = text_of(RuntimeError, copy.deepcopy, values(2).requires_grad_() * 2)
    assert text == text_of(RuntimeError, copy.deepcopy, values(2).to("mps").requires_grad_() * 2)
    shallow = copy.copy(x)
    assert shallow.data_ptr() == x.data_ptr()


def test_the_host_alias_sees_what_the_device_writes() -> None:
    """torch.mps._host_alias_storage, from 2.13 on, is the unified memory itself, seen from the CPU."""
    assert hasattr(torch.mps, "_host_alias_storage") == version_rules(torch.__version__).host_alias_storage
    if not version_rules(torch.__version__).host_alias_storage:
        return
    x = torch.arange(4.0, device="mps")
    alias = torch.mps._host_alias_storage(x.untyped_storage())
    assert (torch.device("cpu"), 16) == (alias.device, alias.nbytes())
    seen = torch.empty(0).set_(alias)
    x.mul_(2)
    torch.mps.synchronize()
    assert [0.0, 2.0, 4.0, 6.0] == seen.tolist()
    seen[0] = 9
    assert 9.0 == x[0].item()
    text = text_of(ValueError, torch.mps._host_alias_storage, torch.ones(1).untyped_storage())
    assert text == "getHostAliasStorage: expected an MPS storage, got device=cpu"
    text = text_of(RuntimeError, torch._C._mps_host_alias_storage, 3)
    assert text == "_mps_host_alias_storage: expected a torch.UntypedStorage"


def test_the_host_alias_outlives_its_tensor() -> None:
    """The alias, from 2.13 on, keeps the memory; it cannot be resized."""
    if not version_rules(torch.__version__).host_alias_storage:
        return
    alias = torch.mps._host_alias_storage(torch.full((4,), 5.0, device="mps").untyped_storage())
    torch.ones(1000, device="mps")
    assert [5.0] * 4 == torch.empty(0).set_(alias).tolist()
    assert not alias.resizable()


def test_inplace_on_data_during_backward_is_noticed() -> None:
    """A saved tensor changed in place makes backward raise torch's text about versions."""

    def run(x: torch.Tensor) -> None:
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    expected = text_of(RuntimeError, run, torch.ones(2, requires_grad=True))
    found = text_of(RuntimeError, run, torch.ones(2, device="mps", requires_grad=True))
    assert expected.replace("torch.FloatTensor", "MPSFloatType") == found


def test_gradients_may_be_set_and_cleared() -> None:
    """.grad accepts an mps tensor of the same shape and dtype only, and accumulates in place."""
    p = nn.Parameter(torch.ones(2, device="mps"))
    p.grad = torch.ones(2, device="mps")
    (p * 3).sum().backward()
    assert_same(p.grad, torch.full((2,), 4.0))
    with pytest.raises(RuntimeError) as raised:
        p.grad = torch.ones(2)
    assert "attempting to assign a gradient with device type 'cpu' to a tensor with device type 'mps'" in str(
        raised.value
    )
    p.grad = None
    assert p.grad is None
    same_gradients(lambda x: x.clone().requires_grad_() * x, values(3))
