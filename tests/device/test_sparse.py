"""Sparse COO tensors: making, moving, coalescing, arithmetic, products and gradients equal the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from device.compare import assert_same, text_of, values

pytestmark = [
    pytest.mark.usefixtures("mps_device"),
    pytest.mark.filterwarnings(
        "ignore:Sparse invariant checks are implicitly disabled:UserWarning",
        "ignore:Sparse CSR tensor support is in beta state:UserWarning",
    ),
]


def coo(*, duplicates: bool = False, hybrid: bool = False) -> torch.Tensor:
    """A 4 by 5 COO tensor with five entries, maybe two of them at one place, maybe with rows of values."""
    where = torch.tensor([[0, 1, 1, 3, 3], [2, 0, 4, 1, 1 if duplicates else 3]])
    data = values(5, 2) if hybrid else values(5)
    return torch.sparse_coo_tensor(where, data, (4, 5, 2) if hybrid else (4, 5))


def same_sparse(actual: Any, expected: Any) -> None:
    """Sparse or dense results agree entry by entry."""
    assert torch.device("mps:0") == actual.device
    assert (expected.layout, expected.dtype, expected.shape) == (actual.layout, actual.dtype, actual.shape)
    if expected.layout == torch.sparse_coo:
        assert expected.is_coalesced() == actual.is_coalesced()
        assert (expected.sparse_dim(), expected.dense_dim()) == (actual.sparse_dim(), actual.dense_dim())
        assert_same(actual.coalesce().indices(), expected.coalesce().indices(), strides=False)
        actual, expected = actual.coalesce().values(), expected.coalesce().values()
    torch.testing.assert_close(actual.detach().cpu(), expected.detach())


def test_tensors_are_made_on_the_device() -> None:
    """sparse_coo_tensor from mps parts, with and without sizes, and an empty one."""
    x = coo()
    there = torch.sparse_coo_tensor(x._indices().to("mps"), x._values().to("mps"), (4, 5))
    same_sparse(there, x)
    same_sparse(torch.sparse_coo_tensor(x._indices().to("mps"), x._values().to("mps")), x)
    same_sparse(torch.sparse_coo_tensor(x._indices(), x._values(), (4, 5), device="mps"), x)
    empty = torch.sparse_coo_tensor(size=(2, 3), device="mps")
    assert 0 == empty._nnz()
    assert torch.device("mps:0") == empty.device
    assert there.is_sparse


def test_moving_both_ways() -> None:
    """A sparse tensor moves to mps and back with its coalesced flag."""
    for x in (coo(), coo().coalesce(), coo(duplicates=True), coo(hybrid=True)):
        same_sparse(x.to("mps"), x)
        back = x.to("mps").cpu()
        assert x.is_coalesced() == back.is_coalesced()
        assert torch.equal(x.to_dense(), back.to_dense())
    same_sparse(coo().to("mps").to(torch.float16), coo().to(torch.float16))


OPERATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "coalesce": lambda x: x.coalesce(),
    "to_dense": lambda x: x.to_dense(),
    "indices": lambda x: x.coalesce().indices(),
    "values": lambda x: x.coalesce().values(),
    "transpose": lambda x: x.t(),
    "clone": lambda x: x.clone(),
    "negative": lambda x: -x,
    "times number": lambda x: x * 3,
    "divided by number": lambda x: x / 2,
    "sum": lambda x: torch.sparse.sum(x),
    "sum over dim": lambda x: torch.sparse.sum(x, 0),
    "add sparse": lambda x: x + x,
    "add dense": lambda x: torch.ones(4, 5, device=x.device) + x,
    "times sparse": lambda x: x * x,
    "times dense": lambda x: x * torch.full((4, 5), 2.0, device=x.device),
    "mm": lambda x: torch.sparse.mm(x, torch.ones(5, 3, device=x.device)),
    "matmul": lambda x: x @ torch.ones(5, 3, device=x.device),
    "mv": lambda x: x @ torch.ones(5, device=x.device),
    "addmm": lambda x: torch.sparse.addmm(torch.ones(4, 3, device=x.device), x, torch.ones(5, 3, device=x.device)),
    "sparse by sparse": lambda x: torch.sparse.mm(x, x.t()),
    "abs": lambda x: x.abs(),
    "sqrt": lambda x: x.abs().sqrt(),
    "pow": lambda x: x.coalesce() ** 2,
    "sin": lambda x: x.sin(),
    "relu": lambda x: x.relu(),
    "select": lambda x: x.select(0, 1),
    "index_select": lambda x: x.index_select(0, torch.tensor([3, 0], device=x.device)),
    "cat": lambda x: torch.cat([x, x]),
    "sparse_mask": lambda x: torch.ones(4, 5, device=x.device).sparse_mask(x.coalesce()),
    "zeros_like": lambda x: torch.zeros_like(x),
    "ones_like of values": lambda x: torch.sparse_coo_tensor(x._indices(), torch.ones_like(x._values()), x.shape),
    "to_sparse": lambda x: x.to_dense().to_sparse(),
    "norm": lambda x: x.norm(),
    "any": lambda x: (x.to_dense() != 0).any(),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "in place": lambda x: x.clone().mul_(2),
    "add_ sparse": lambda x: x.clone().add_(x),
    "zero_": lambda x: x.clone().zero_(),
}


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_operations_equal_those_of_the_cpu(name: str, duplicates: bool) -> None:
    """Sparse operators give the CPU's entries, flags and layouts."""
    x = coo(duplicates=duplicates)
    if name == "values" and not duplicates:
        x = x.coalesce()
    same_sparse(OPERATIONS[name](x.to("mps")), OPERATIONS[name](x))


def test_properties_and_text() -> None:
    """nnz, dims, is_coalesced and repr know sparse mps tensors."""
    x = coo().coalesce().to("mps")
    assert (5, 2, 0, True) == (x._nnz(), x.sparse_dim(), x.dense_dim(), x.is_coalesced())
    assert "device='mps:0', size=(4, 5), nnz=5, layout=torch.sparse_coo)" in repr(x)
    assert text_of(RuntimeError, coo().to("mps").indices) == text_of(RuntimeError, coo().indices)


def test_gradients_through_sparse_tensors() -> None:
    """sparse.mm and to_dense give the CPU's gradients to values and dense factors."""
    results = []
    for device in ("cpu", "mps"):
        data = values(5).to(device).requires_grad_()
        dense = values(5, 3).to(device).requires_grad_()
        x = torch.sparse_coo_tensor(coo()._indices().to(device), data, (4, 5))
        (torch.sparse.mm(x, dense).sum() + x.to_dense().pow(2).sum()).backward()
        results.append((data.grad, dense.grad))
    for one, other in zip(results[1], results[0], strict=True):
        assert_same(one, other)


def test_parts_share_memory() -> None:
    """_indices and _values are the tensor's own memory on mps."""
    x = coo().coalesce().to("mps")
    x._values().fill_(2.0)
    assert 10.0 == torch.sparse.sum(x).item()
    assert x._values().is_mps
    assert x._indices().is_mps


def test_float64_values_are_refused() -> None:
    """A float64 sparse tensor does not move to mps."""
    text = text_of(TypeError, coo().double().to, "mps")
    assert text.startswith("Cannot convert a MPS Tensor to float64 dtype")


@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta:UserWarning")
@pytest.mark.parametrize("layout", ["csc", "bsr", "bsc"])
def test_other_compressed_layouts_do_not_exist(layout: str) -> None:
    """CSC, BSR and BSC tensors have no mps kernels, so that they cannot be made or moved there."""
    x = torch.eye(4)
    made = getattr(x, f"to_sparse_{layout}")(*(((2, 2),) if layout.startswith("b") else ()))
    with pytest.raises((NotImplementedError, RuntimeError)):
        made.to("mps").to_dense().sum().item()
