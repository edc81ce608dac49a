"""torch.use_deterministic_algorithms(True): only what alerts on a Mac alerts here, under the Mac's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional as F

from anymps.rules import alerts
from device.compare import needs_kernel, text_of

pytestmark = pytest.mark.usefixtures("mps_device")

TEXT = (
    "{} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. "
    "You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if that's "
    "acceptable for your application. You can also file an issue at https://github.com/pytorch/pytorch/issues to help "
    "us prioritize adding deterministic support for this operation."
)


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    """The flag is on for one test."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def there(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device="mps")


def zero() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int64, device="mps")


ALERTING: dict[str, tuple[str, Callable[[], object]]] = {
    "kthvalue": ("kthvalue", lambda: there(3).kthvalue(1)),
    "index_put_ accumulate": ("_index_put_impl_", lambda: there(3).index_put_((zero(),), there(1), accumulate=True)),
    "index_reduce": ("index_reduce", lambda: there(3).index_reduce(0, zero(), there(1), "prod")),
    "scatter_add": ("scatter_add", lambda: there(3).scatter_add(0, zero(), there(1))),
    "scatter_add_": ("scatter_add_", lambda: there(3).scatter_add_(0, zero(), there(1))),
    "scatter_reduce": ("scatter_reduce", lambda: there(3).scatter_reduce(0, zero(), there(1), "sum")),
    "scatter add": ("scatter", lambda: there(3).scatter(0, zero(), there(1), reduce="add")),
    "embedding backward": (
        "embedding_dense_backward",
        lambda: torch.ops.aten.embedding_dense_backward(there(1, 2), zero(), 3, -1, False),
    ),
}
SILENT: dict[str, Callable[[], object]] = {
    "max_unpool2d": lambda: F.max_unpool2d(there(1, 1, 1, 1), zero().view(1, 1, 1, 1), 2),
    "max_unpool3d": lambda: F.max_unpool3d(there(1, 1, 1, 1, 1), zero().view(1, 1, 1, 1, 1), 2),
    "index_add": lambda: there(3).index_add(0, zero(), there(1)),
    "index_put_": lambda: there(3).index_put_((zero(),), there(1)),
    "index_put_ of integers": lambda: there(3, dtype=torch.int32).index_put_(
        (zero(),), there(1, dtype=torch.int32), accumulate=True
    ),
    "index_reduce amax": lambda: there(3).index_reduce(0, zero(), there(1), "amax"),
    "scatter_reduce amax": lambda: there(3).scatter_reduce(0, zero(), there(1), "amax"),
    "scatter": lambda: there(3).scatter(0, zero(), there(1)),
    "scatter_add of integers": lambda: there(3, dtype=torch.int32).scatter_add(0, zero(), there(1, dtype=torch.int32)),
    "bincount": lambda: torch.bincount(zero()),
    "cumsum": lambda: there(3).cumsum(0),
    "median": lambda: there(3).median(0),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The reduce argument:UserWarning", "ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("name", list(ALERTING))
def test_what_alerts(name: str) -> None:
    """The alert has the name of the Mac's kernel, from the release on that alerts; before it the call runs."""
    operator, call = ALERTING[name]
    if operator == "index_reduce":
        needs_kernel("index_reduce.out")
    row = alerts(torch.__version__).get(operator)
    if row is None:
        call()
    else:
        assert TEXT.format(row[0]) == text_of(RuntimeError, call)


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("name", list(SILENT))
def test_what_runs_without_an_alert(name: str) -> None:
    """These run on a Mac, even where the CPU's kernel alerts; the flag is as it was afterwards."""
    if name.startswith("index_reduce"):
        needs_kernel("index_reduce.out")
    SILENT[name]()
    assert torch.are_deterministic_algorithms_enabled()


def test_alerts_can_be_warnings() -> None:
    """With warn_only=True the call warns under the same name and runs."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="kthvalue MPS does not have a deterministic implementation"):
        assert 1.0 == there(3).kthvalue(1).values.item()
