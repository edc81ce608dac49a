"""Indexing, gathering, scattering, sorting, searching, reductions and comparisons equal the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from device.compare import assert_same, needs_kernel, same, same_gradients, text_of, values

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
REDUCE: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 1), keepdim=True), x.sum(0, dtype=torch.float16)),
    "mean": lambda x: (x.mean(), x.mean(0)),
    "prod": lambda x: (x.prod(), x.prod(1)),
    "max and min": lambda x: (x.max(), x.min(0), x.max(1, keepdim=True), torch.maximum(x, -x)),
    "amax": lambda x: (x.amax(), x.amin(1), x.aminmax()),
    "arg": lambda x: (x.argmax(), x.argmin(1), x.argmax(0, keepdim=True)),
    "std": lambda x: (x.std(), x.var(1), x.std(0, correction=0), torch.var_mean(x), torch.std_mean(x, 1)),
    "any and all": lambda x: ((x > 0).any(), (x > 0).all(1), (x > 9).any(0)),
    "cumulative": lambda x: (x.cumsum(0), x.cumprod(1), x.cummax(0), x.cummin(1), x.logcumsumexp(0)),
    "norms": lambda x: (x.norm(), x.norm(1, 1), torch.linalg.vector_norm(x, 3, 0), x.norm(dim=(0, 1))),
    "logsumexp": lambda x: x.logsumexp(1),
    "count_nonzero": lambda x: (x > 0).count_nonzero(1),
    "trace": lambda x: x[:, :3].trace(),
    "nan": lambda x: (x.log().nansum(), x.log().nanmean(), torch.nan_to_num(x.log())),
    "diff": lambda x: (x.diff(), torch.trapezoid(x), torch.cumulative_trapezoid(x)),
    "comparisons": lambda x: (x == 0, x > 0, x.isnan(), x.log().isinf(), torch.isclose(x, x)),
    "softmax": lambda x: (x.softmax(1), x.log_softmax(0)),
    "logical": lambda x: ((x > 0) & (x < 1), (x > 0) ^ True, ~(x > 0), torch.logical_or(x > 0, x < -1)),
    "rounding": lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.frac(), x.round(decimals=1), x % 0.7, x // 0.3),
    "integers": lambda x: [(y + 3, y * y, y // 2, y % 3, -y, y << 1, y & 1, y | 4, y**2) for y in ((x * 4).int(),)],
    "special": lambda x: (x.sigmoid(), x.erf(), x.lgamma(), x.digamma(), torch.special.i0(x)),
    "trigonometry": lambda x: (x.sin(), x.cos(), x.tan(), x.atan(), x.sinh(), x.asinh(), torch.atan2(x, -x)),
    "powers": lambda x: (x.abs().sqrt(), x.square(), x.abs() ** 0.3, 2**x, x.reciprocal(), torch.hypot(x, x)),
    "ldexp": lambda x: (torch.ldexp(x, (x * 2).int()), torch.ldexp(x, x.int())),
    "mixing": lambda x: (torch.lerp(x, -x, 0.3), torch.addcmul(x, x, x, value=2), x.clamp(-0.5, 0.5)),
}  # fmt: skip
_NO_GRADIENT = (
    "nonzero", "argwhere", "where condition", "searchsorted", "bucketize", "unique", "bincount", "histc", "isin",
    "one_hot", "argsort", "stable sort",
)  # fmt: skip


@pytest.mark.parametrize("name", list(READ))
def test_reading_equals_the_cpu(name: str) -> None:
    """Selecting, sorting and searching give the CPU's values, dtypes and shapes."""
    same(READ[name], values(3, 4), strides=False)


@pytest.mark.parametrize("name", [name for name in READ if not name.startswith(_NO_GRADIENT)])
def test_gradients_of_reading_equal_the_cpu(name: str) -> None:
    """Gradients scatter back to where the elements came from."""
    if name == "cross product of rows":
        needs_kernel("_cdist_backward")
    same_gradients(READ[name], values(3, 4))


@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning")
@pytest.mark.parametrize("name", list(WRITE))
def test_writing_equals_the_cpu(name: str) -> None:
    """Assignments and scatters leave what they leave on the CPU."""

    def run(x: torch.Tensor) -> Any:
        return WRITE[name](x), x

    if name == "index_reduce":
        needs_kernel("index_reduce.out")
    same(run, values(3, 4), strides=False)


@pytest.mark.parametrize("name", [n for n in WRITE if n not in ("setitem other dtype", "index_reduce")])
def test_gradients_of_writing_equal_the_cpu(name: str) -> None:
    """In-place writes take part in autograd."""

    def run(leaf: torch.Tensor) -> torch.Tensor:
        x = leaf * 1.0
        result = WRITE[name](x)
        return (result if isinstance(result, torch.Tensor) else x) * 2

    same_gradients(run, values(3, 4))


@pytest.mark.parametrize("name", list(REDUCE))
def test_reductions_and_pointwise_operators_equal_the_cpu(name: str) -> None:
    """Reductions, comparisons and element-wise operators give the CPU's values and dtypes."""
    same(REDUCE[name], values(3, 4), strides=False)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16], ids=str)
def test_indexing_of_other_dtypes(dtype: torch.dtype) -> None:
    """Indexing, sorting and summing work for integers, bool and float16."""
    x = values(3, 4, dtype=dtype)
    for name in ("one index", "bool mask", "gather", "index_select", "flip", "cat", "where"):
        same(READ[name], x, strides=False)
    same(lambda t: (t.sum(), t.sum(0), t.any()), x)


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


def test_empty_reductions() -> None:
    """Reductions over nothing give the identities, or torch's refusals."""
    same(lambda x: (x.sum(), x.prod(), x.mean(), x.all(), x.any()), values(0))
    same(lambda x: x.max(), values(0))
    same(lambda x: x.argmax(), values(0))


def test_type_promotion() -> None:
    """Mixed dtypes and Python numbers promote as on the CPU."""
    a, b = values(3, dtype=torch.int32), values(3)
    same(lambda a, b: (a + b, a * 2.5, a / 2, a + True, b.half() + b, a > b, a.add(1), torch.add(a, b, alpha=2)), a, b)
    same(lambda a, b: (torch.result_type(a, b), torch.where(a > 1, a, b), a.float() // 2), a, b)


def test_broadcasting_and_wrong_shapes() -> None:
    """Shapes broadcast; those that do not raise torch's text."""
    same(lambda a, b: (a + b, a * b[:, None], torch.maximum(a, b)), values(3, 3), values(3))
    same(lambda a, b: a + b, values(3), values(4))
    same(lambda a, b: a @ b, values(3, 4), values(3, 4))
