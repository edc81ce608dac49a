"""Arguments that single MPS kernels refuse although the CPU takes them, in the backend's whole words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from anymps.rules import ERROR_CLASSES, installed_torch, missing_stub, operator_limits
from device.compare import text_of
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

VERSION = installed_torch().version


def there(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device="mps")


def lstm_with_projection() -> object:
    return nn.LSTM(4, 6, proj_size=3).to("mps")(there(2, 1, 4))


def fused(kind: type[torch.optim.Optimizer], **options: object) -> object:
    """A step of a fused optimizer with a gradient that is one element, shown four times."""
    weight = nn.Parameter(there(4))
    weight.grad = there(1).expand(4)
    return kind([weight], lr=0.1, fused=True, **options).step()  # type: ignore[call-arg]


LIMITS: dict[str, Callable[[], object]] = {
    "adaptive pool input": lambda: F.adaptive_avg_pool2d(there(1, 1, 5, 5), 3),
    "adaptive pool output": lambda: F.adaptive_avg_pool2d(there(1, 1, 3, 3), 5),
    "addbmm": lambda: torch.baddbmm(there(1, 2, 2), *2 * [torch.zeros(1, 2, 2).to(torch.float8_e4m3fn).to("mps")]),
    "addr columns": lambda: there(2, 3).addr_(there(2), there(2)),
    "addr matrix": lambda: there(2).addr_(there(2), there(2)),
    "addr rows": lambda: there(2, 3).addr_(there(3), there(3)),
    "addr vectors": lambda: torch.addr(there(2, 2), there(2, 1), there(2)),
    "batch norm int64": lambda: F.batch_norm(there(2, 2, dtype=torch.int64), None, None, training=True),
    "conv_transpose3d half": lambda: F.conv_transpose3d(
        there(1, 1, 2, 2, 2, dtype=torch.float16), there(1, 1, 1, 1, 1, dtype=torch.float16)
    ),
    "conj_physical real": lambda: torch.conj_physical(there(2), out=there(2)),
    "fused adam": lambda: fused(torch.optim.Adam),
    "fused adam amsgrad": lambda: fused(torch.optim.AdamW, amsgrad=True),
    "fused sgd": lambda: fused(torch.optim.SGD),
    "fused sgd momentum": lambda: fused(torch.optim.SGD, momentum=0.9),
    "grid_sampler_3d": lambda: torch.ops.aten.grid_sampler_3d(there(1, 1, 2, 2, 2), there(1, 2, 2, 2, 3), 2, 0, False),
    "grid_sampler_3d backward": lambda: torch.ops.aten.grid_sampler_3d_backward(
        there(1, 1, 2, 2, 2), there(1, 1, 2, 2, 2), there(1, 2, 2, 2, 3), 2, 0, False, [True, True]
    ),
    "linear": lambda: F.linear(there(2, 2, dtype=torch.int32), there(2, 2, dtype=torch.int32)),
    "lstm projections": lstm_with_projection,
    "lu_factor complex": lambda: torch.linalg.lu_factor(torch.eye(2, dtype=torch.complex64, device="mps")),
    "lu_factor pivot": lambda: torch.linalg.lu_factor(torch.eye(2, device="mps"), pivot=False),
    "masked_scatter mask": lambda: there(2).masked_scatter_(there(2, dtype=torch.int32), there(2)),
    "scatter product int64": lambda: there(2, dtype=torch.int64).scatter_reduce(
        0, torch.tensor([0], device="mps"), there(1, dtype=torch.int64), "prod"
    ),
    "sdpa dropout": lambda: torch.ops.aten._scaled_dot_product_attention_math_for_mps(
        there(1, 1, 2, 2), there(1, 1, 2, 2), there(1, 1, 2, 2), None, 0.5
    ),
    "softmax cast": lambda: torch.ops.aten._softmax(there(2, dtype=torch.float16), 0, True),
    "std complex gradient": lambda: there(3, dtype=torch.complex64).requires_grad_().std(),
    "var_mean complex gradient": lambda: torch.var_mean(there(3, dtype=torch.complex64).requires_grad_()),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", list(LIMITS))
def test_an_argument_the_kernel_does_not_take(name: str) -> None:
    """Each limit raises its class with its whole text, in the releases that have it."""
    if name not in operator_limits(VERSION):
        pytest.skip(f"torch {VERSION.major}.{VERSION.minor} has no such limit")
    number, text = operator_limits(VERSION)[name]
    error = {"RuntimeError": RuntimeError, "NotImplementedError": NotImplementedError}[ERROR_CLASSES[number]]
    assert text == text_of(error, LIMITS[name])


def test_what_is_within_the_limits_runs() -> None:
    """The same calls with what the kernels take."""
    assert F.adaptive_avg_pool2d(there(1, 1, 6, 6), 3).shape == (1, 1, 3, 3)
    assert torch.linalg.lu_factor(torch.eye(2, device="mps")).pivots.tolist() == [1, 2]
    assert nn.LSTM(4, 6).to("mps")(there(2, 1, 4))[0].shape == (2, 1, 6)
    assert not there(3, dtype=torch.complex64).std().is_complex()
    x = there(3).requires_grad_()
    x.std().backward()
    assert x.grad is not None
    assert F.conv2d(there(1, 1, 2, 2), there(70000, 1, 1, 1)).shape == (1, 70000, 2, 2)  # macOS is newer than 15.1


def test_convolutions_before_macos_15_1() -> None:
    """On an older macOS no dimension of a convolution's result passes 65536."""
    run = run_with_torch(
        "import torch, anymps\nanymps.enable(mac='M1 8GB, macOS 14.0')\n"
        "for channels in (65536, 65537):\n"
        "    try:\n"
        "        print(torch.nn.functional.conv2d(torch.ones(1, 1, 1, 1, device='mps'),\n"
        "              torch.ones(channels, 1, 1, 1, device='mps')).shape[1])\n"
        "    except NotImplementedError as error:\n"
        "        print(repr(str(error)))\n"
    )
    assert ["65536", "'Output channels > 65536 not supported at the MPS device. '"] == run.lines


def test_kaiser_windows() -> None:
    """A Kaiser window has no MPS kernel behind its stub: an assertion, as on a Mac; shorter ones need no kernel."""
    assert missing_stub(VERSION).text == text_of(RuntimeError, torch.kaiser_window, 5, device="mps")
    assert [1.0] == torch.kaiser_window(1, device="mps").tolist()


def test_normal_with_tensors_on_two_devices() -> None:
    """torch.normal with a mean and a deviation on two devices stops where the two meet."""
    text = text_of(RuntimeError, torch.normal, there(2), torch.ones(2))
    if VERSION.release < (2, 13):
        assert text == "Placeholder storage has not been allocated on MPS device!"
    else:
        assert text == "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc])
def test_compressed_layouts_are_asked_of_their_own_operator(layout: torch.layout) -> None:
    """to_sparse into a compressed layout ends in the operator of that layout, which MPS lacks."""
    block = (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    operator = str(layout).replace("torch.sparse_", "aten::_to_sparse_")
    text = text_of(NotImplementedError, lambda: there(2, 2).to_sparse(layout=layout, blocksize=block))
    assert text.startswith(f"The operator '{operator}' is not currently implemented for the MPS device.")
    text = text_of(NotImplementedError, lambda: there(2, 2).to_sparse().to_sparse(layout=layout, blocksize=block))
    assert text.startswith(f"Could not run '{operator}' with arguments from the 'SparseMPS' backend.")


@pytest.mark.parametrize("given", [torch.int64, torch.uint8, torch.bfloat16, torch.float16, torch.float32])
def test_weighted_counts_have_a_dtype_of_their_own(given: torch.dtype) -> None:
    """bincount casts other weights than float32, float16 and int32 to int32, where the CPU counts in float64."""
    counts = torch.bincount(torch.tensor([0, 2, 2], device="mps"), there(3, dtype=given))
    assert [1, 0, 2] == counts.tolist()
    assert counts.dtype == (given if given in (torch.float16, torch.float32) else torch.int32)
    assert torch.int64 == torch.bincount(torch.tensor([0, 2, 2], device="mps")).dtype


def test_results_have_no_more_than_sixteen_dimensions() -> None:
    """A view may have more; a result that is allocated by its sizes may not, and work in place needs none."""
    many = there(2).view([1] * 17 + [2])
    for call in (lambda: many + 1, many.exp, lambda: many.transpose(0, 1).contiguous().mul(2)):
        assert "MPS supports tensors with dimensions <= 16, but got 18." == text_of(RuntimeError, call)
    assert 2.0 == many.add_(1).sum().item() / 2
    assert (18, 18) == (many.clone().dim(), many.cpu().dim())


def test_results_of_an_iterator_lie_on_the_device() -> None:
    """A single number on the CPU is an operand of its own kind; as out= it is refused."""
    text = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
    number = there(1)[0]
    assert text == text_of(RuntimeError, torch.add, number, number, out=torch.tensor(0.0))
    assert text == text_of(RuntimeError, torch.tensor(1.0).add_, number)
    assert 2.0 == (torch.tensor(1.0) + number).item()


def test_conjugation_in_place() -> None:
    """conj_physical_ works from torch 2.14 on; before, the table of kernels has no entry for mps."""
    x = torch.tensor([1 + 2j], device="mps")
    if VERSION.release < (2, 14):
        assert "An unexpected device type was provided mps" in text_of(RuntimeError, x.conj_physical_)
    else:
        assert [1 - 2j] == x.conj_physical_().tolist()
    assert [1.0] == there(1).conj_physical_().tolist()
