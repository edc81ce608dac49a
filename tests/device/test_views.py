"""Views and strides: views share memory with their base, in-place changes show through, geometry equals the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from device.compare import assert_same, same, same_gradients, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "view": lambda x: x.view(6, 4),
    "view dtype": lambda x: x.view(torch.int32),
    "view smaller dtype": lambda x: x.view(torch.uint8),
    "reshape": lambda x: x.reshape(2, 12),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, -1),
    "swapaxes": lambda x: x.swapaxes(1, 2),
    "mT": lambda x: x.mT,
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[:, 1:, ::2],
    "index int": lambda x: x[1, 2],
    "ellipsis": lambda x: x[..., None, 1],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 3), 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "split": lambda x: x.split(2, 2),
    "split sizes": lambda x: x.split([1, 3], 2),
    "chunk": lambda x: x.chunk(3, 1),
    "tensor_split": lambda x: x.tensor_split((1, 2), 1),
    "unbind": lambda x: x.unbind(1),
    "hsplit": lambda x: x.hsplit(3),
    "vsplit": lambda x: x.vsplit(2),
    "dsplit": lambda x: x.dsplit(2),
    "t": lambda x: x[0].t(),
    "adjoint": lambda x: x.adjoint(),
    "detach": lambda x: x.detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "expand_as": lambda x: x[:, :1].expand_as(x),
    "broadcast_to": lambda x: x.broadcast_to(2, 2, 3, 4),
    "atleast_3d": lambda x: torch.atleast_3d(x[0, 0]),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x[:, :1]),
    "view_as": lambda x: x.view_as(x),
    "lift_fresh": lambda x: torch.ops.aten.lift_fresh(x),
}


@pytest.mark.parametrize("name", list(VIEWS))
def test_a_view_has_the_geometry_and_values_of_the_cpu(name: str) -> None:
    """Shape, strides, storage offset and values of a view equal those of the CPU's view."""
    view = VIEWS[name]
    x = values(2, 3, 4)
    same(lambda t: view(t), x)
    there, here = view(x.to("mps")), view(x)
    for one, other in zip(_flat(there), _flat(here), strict=True):
        assert other.storage_offset() == one.storage_offset()
        assert other._is_view() == one._is_view()


@pytest.mark.parametrize("name", list(VIEWS))
def test_a_view_shares_memory_with_its_base(name: str) -> None:
    """Filling a view changes its base, and the version counters of both move together."""
    view = VIEWS[name]

    def fill(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for part in _flat(view(x)):
                part.copy_(torch.ones_like(part[..., :1] if part.dim() else part))
        return x

    same(fill, values(2, 3, 4))
    base = values(2, 3, 4).to("mps")
    parts = _flat(view(base))
    assert all(base.untyped_storage().data_ptr() == part.untyped_storage().data_ptr() for part in parts)
    if name not in ("detach", "view dtype", "view smaller dtype"):
        before = parts[0]._version
        base.zero_()
        assert before + 1 == parts[0]._version
        assert not parts[0].any()


@pytest.mark.parametrize(
    "name", [name for name in VIEWS if "dtype" not in name and name not in ("detach", "lift_fresh")]
)
def test_gradients_flow_through_a_view(name: str) -> None:
    """Backward through a view gives the CPU's gradient."""
    same_gradients(lambda x: VIEWS[name](x), values(2, 3, 4))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[0].mul_(2),
        lambda x: x[:, 1:].add_(x[:, :-1].clone()),
        lambda x: x.t().copy_(torch.arange(12.0, device=x.device).view(4, 3)),
        lambda x: x.view(-1)[::2].zero_(),
        lambda x: x.diagonal().fill_(7),
        lambda x: x.select(0, 2).exp_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.t_().add_(1),
        lambda x: x.unsqueeze_(0).squeeze_(0).mul_(3),
        lambda x: x.swapdims_(0, 1)[1].neg_(),
        lambda x: x.as_strided_((2, 2), (4, 1), 2).fill_(5),
    ],
)
def test_in_place_on_a_view_of_a_computed_tensor(change: Callable[[torch.Tensor], Any]) -> None:
    """Autograd rewrites the graph of the base when a view of it is changed in place."""

    def call(leaf: torch.Tensor) -> torch.Tensor:
        x = leaf * 1.0
        change(x)
        return x * x

    same_gradients(call, values(3, 4))


def test_in_place_on_a_view_of_a_leaf_is_refused() -> None:
    """A view of a leaf that requires gradients cannot be changed in place, in the words of torch."""

    def change(x: torch.Tensor) -> None:
        x[0].mul_(2)

    expected = text_of(RuntimeError, change, values(2, 2).requires_grad_())
    assert expected == text_of(RuntimeError, change, values(2, 2).to("mps").requires_grad_())


def test_views_of_views_keep_their_base() -> None:
    """`_base` of a chain of views is the first tensor."""
    base = values(4, 6).to("mps")
    chain = base[1:].t()[2:].view(-1, 3)[0]
    assert chain._base is base
    chain.fill_(3)
    assert 3.0 == base[1:, 2][0].item()


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


def test_contiguity_questions() -> None:
    """is_contiguous, is_non_overlapping_and_dense and contiguous() answer as on the CPU."""
    for view in (lambda x: x, lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[:1].expand(3, 4)):
        here, there = view(values(3, 4)), view(values(3, 4).to("mps"))
        assert here.is_contiguous() == there.is_contiguous()
        assert torch.ops.aten.is_non_overlapping_and_dense(here) == torch.ops.aten.is_non_overlapping_and_dense(there)
        assert (here.contiguous() is here) == (there.contiguous() is there)


def test_writing_through_an_expanded_tensor_is_refused() -> None:
    """An in-place operation on a tensor with overlapping memory raises torch's text."""

    def change(x: torch.Tensor) -> None:
        x.expand(3, 4).add_(1)

    assert text_of(RuntimeError, change, values(1, 4)) == text_of(RuntimeError, change, values(1, 4).to("mps"))


def test_partially_overlapping_writes_are_refused() -> None:
    """A source that partly overlaps its destination raises torch's text."""

    def change(x: torch.Tensor) -> None:
        torch.add(x[:-1], 1, out=x[1:])

    assert text_of(RuntimeError, change, values(4)) == text_of(RuntimeError, change, values(4).to("mps"))


def _flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)
