"""Indexing, gathering, scattering, sorting and searching equal the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from device.compare import assert_same, needs_kernel, same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


def ids(*numbers: int, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(numbers, device=like.device)


READ: dict[str, Callable[[torch.Tensor], Any]] = {
    "one index": lambda x: x[ids(2, 0, 2, like=x)],
    "two indices": lambda x: x[ids(0, 2, like=x), ids(3, 1, like=x)],
    "broadcast indices": lambda x: x[ids(0, 2, like=x)[:, None], ids(3, 1, 0, like=x)],
    "index and slice": lambda x: x[1:, ids(3, 3, like=x)],
    "list": lambda x: x[[2, 1]],
    "tuple with ellipsis": lambda x: x[..., [0, 2]],
    "none": lambda x: x[None, :, None, 1],
    "negative": lambda x: x[ids(-1, -3, like=x)],
    "bool mask": lambda x: x[x > 0],
    "row mask": lambda x: x[torch.tensor([True, False, True], device=x.device)],
    "uint8-free mask and slice": lambda x: x[:, torch.tensor([True, False, True, True], device=x.device)],
    "python bools": lambda x: x[True],
    "0-dim index": lambda x: x[ids(1, like=x)[0]],
    "empty index": lambda x: x[torch.empty(0, dtype=torch.int64, device=x.device)],
    "int32 index": lambda x: x[ids(1, 0, like=x).int()],
    "index_select": lambda x: torch.index_select(x, 1, ids(3, 0, like=x)),
    "gather": lambda x: x.gather(1, ids(0, 1, 2, like=x)[:, None]),
    "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(1), 1),
    "masked_select": lambda x: x.masked_select(x < 0),
    "nonzero": lambda x: (x > 0).nonzero(),
    "nonzero tuple": lambda x: (x > 0).nonzero(as_tuple=True),
    "argwhere": lambda x: torch.argwhere(x > 0),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "where scalar": lambda x: torch.where(x > 0, x, -1.0),
    "where condition": lambda x: torch.where(x > 0),
    "sort": lambda x: x.sort(1),
    "sort descending": lambda x: x.sort(0, descending=True),
    "stable sort": lambda x: (x > 0).int().sort(1, stable=True),
    "argsort": lambda x: x.argsort(1),
    "msort": lambda x: x.msort(),
    "topk": lambda x: x.topk(2),
    "topk smallest": lambda x: x.topk(2, dim=0, largest=False),
    "kthvalue": lambda x: x.kthvalue(2, 1),
    "median": lambda x: x.median(1),
    "nanmedian": lambda x: x.nanmedian(),
    "quantile": lambda x: x.quantile(0.3, dim=1),
    "searchsorted": lambda x: torch.searchsorted(x.sort(1).values, x),
    "bucketize": lambda x: torch.bucketize(x, torch.linspace(-1, 1, 5, device=x.device)),
    "unique": lambda x: torch.unique((x * 2).int(), return_inverse=True, return_counts=True),
    "unique dim": lambda x: torch.unique((x > 0).int(), dim=0),
    "unique_consecutive": lambda x: torch.unique_consecutive((x > 0).int().flatten(), return_counts=True),
    "bincount": lambda x: torch.bincount((x.abs() * 3).int().flatten(), minlength=5),
    "histc": lambda x: torch.histc(x, 5, -2, 2),
    "isin": lambda x: torch.isin((x * 2).int(), ids(0, 1, like=x).int()),
    "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll((1, 2), (0, 1)),
    "rot90": lambda x: x.rot90(),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "tile": lambda x: x.tile(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "repeat_interleave tensor": lambda x: x.repeat_interleave(ids(1, 0, 2, like=x), 0),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "diag": lambda x: (x.diag(), x[0].diag(1)),
    "diag_embed": lambda x: x.diag_embed(),
    "cat": lambda x: torch.cat([x, x[:, :1]], 1),
    "cat empty": lambda x: torch.cat([x, torch.empty(0, device=x.device)]),
    "stack": lambda x: torch.stack([x, -x], 1),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), value=3.0),
    "one_hot": lambda x: torch.nn.functional.one_hot(ids(0, 2, 1, like=x), 4),
    "cross product of rows": lambda x: torch.cdist(x, x),
}  # fmt: skip
WRITE: dict[str, Callable[[torch.Tensor], Any]] = {
    "setitem number": lambda x: x.__setitem__((1, slice(None)), 5.0),
    "setitem tensor": lambda x: x.__setitem__(slice(1, None), torch.ones(4, device=x.device)),
    "setitem index": lambda x: x.__setitem__(ids(2, 0, like=x), torch.zeros(2, 4, device=x.device)),
    "setitem mask": lambda x: x.__setitem__(x > 0, 9.0),
    "setitem mask tensor": lambda x: x.__setitem__(x > 0, x[x > 0] * 2),
    "setitem other dtype": lambda x: x.__setitem__((0, 0), torch.tensor(3, device=x.device)),
    "setitem step": lambda x: x.__setitem__((slice(None), slice(0, None, 2)), x[:, 1::2]),
    "index_put accumulate": lambda x: x.index_put_((ids(1, 1, 0, like=x),), x.clone(), accumulate=True),
    "index_add": lambda x: x.index_add_(0, ids(0, 0, 2, like=x), x.clone(), alpha=2),
    "index_copy": lambda x: x.index_copy_(0, ids(2, 0, 1, like=x), x.clone()),
    "index_fill": lambda x: x.index_fill_(1, ids(0, 3, like=x), -1),
    "index_reduce": lambda x: x.index_reduce_(0, ids(0, 0, 2, like=x), x.clone(), "amax"),
    "scatter": lambda x: x.scatter_(1, ids(1, 2, 3, like=x)[:, None], x[:, :1].clone()),
    "scatter number": lambda x: x.scatter_(0, ids(2, 1, 0, 1, like=x)[None], 7.0),
    "scatter_add": lambda x: x.scatter_add_(0, ids(0, 0, 1, 1, like=x)[None].expand(3, 4), x.clone()),
    "scatter_reduce": lambda x: x.scatter_reduce_(0, ids(0, 0, 1, 1, like=x)[None].expand(3, 4), x.clone(), "amax"),
    "scatter_reduce mean": lambda x: x.scatter_reduce_(
        0, ids(0, 0, 1, 1, like=x)[None].expand(3, 4), x.clone(), "mean", include_self=False
    ),
    "masked_fill": lambda x: x.masked_fill_(x < 0, 0.5),
    "masked_fill tensor": lambda x: x.masked_fill_(x < 0, torch.tensor(0.5, device=x.device)),
    "masked_scatter": lambda x: x.masked_scatter_(x < 0, torch.arange(12.0, device=x.device)),
    "select_scatter": lambda x: x.select_scatter(torch.ones(4, device=x.device), 0, 1),
    "slice_scatter": lambda x: x.slice_scatter(torch.ones(1, 4, device=x.device), 0, 1, 2),
    "diagonal_scatter": lambda x: x.diagonal_scatter(torch.ones(3, device=x.device)),
    "fill_diagonal": lambda x: x.fill_diagonal_(4),
}


@pytest.mark.parametrize("name", list(READ))
def test_reading_equals_the_cpu(name: str) -> None:
    """Selecting, sorting and searching give the CPU's values, dtypes and shapes."""
    same(READ[name], values(3, 4), strides=False)


@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning")
@pytest.mark.parametrize("name", list(WRITE))
def test_writing_equals_the_cpu(name: str) -> None:
    """Assignments and scatters leave what they leave on the CPU."""

    def run(x: torch.Tensor) -> Any:
        return WRITE[name](x), x

    if name == "index_reduce":
        needs_kernel("index_reduce.out")
    same(run, values(3, 4), strides=False)


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
