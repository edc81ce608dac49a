"""Arguments that single MPS kernels refuse although the CPU takes them, in the backend's whole words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from anymps.rules import installed_torch, missing_stub, operator_limit
from device.compare import text_of
from processes import run_python

pytestmark = pytest.mark.usefixtures("mps_device")

VERSION = installed_torch().version


def there(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device="mps")


def lstm_with_projection() -> object:
    return nn.LSTM(4, 6, proj_size=3).to("mps")(there(2, 1, 4))


LIMITS: dict[str, Callable[[], object]] = {
    "adaptive pool input": lambda: F.adaptive_avg_pool2d(there(1, 1, 5, 5), 3),
    "adaptive pool output": lambda: F.adaptive_avg_pool2d(there(1, 1, 3, 3), 5),
    "addbmm": lambda: torch.baddbmm(there(1, 2, 2), *2 * [there(1, 2, 2).to(torch.float8_e4m3fn)]),
    "batch norm int64": lambda: F.batch_norm(there(2, 2, dtype=torch.int64), None, None, training=True),
    "conv_transpose3d half": lambda: F.conv_transpose3d(
        there(1, 1, 2, 2, 2, dtype=torch.float16), there(1, 1, 1, 1, 1, dtype=torch.float16)
    ),
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
    said = operator_limit(VERSION, name)
    if said is None:
        pytest.skip(f"torch {VERSION.major}.{VERSION.minor} has no such limit")
    error = {"RuntimeError": RuntimeError, "NotImplementedError": NotImplementedError}[said.error]
    assert said.text == text_of(error, LIMITS[name])


def test_what_is_within_the_limits_runs() -> None:
    """The same calls with what the kernels take."""
    F.adaptive_avg_pool2d(there(1, 1, 6, 6), 3)
    torch.linalg.lu_factor(torch.eye(2, device="mps"))
    nn.LSTM(4, 6).to("mps")(there(2, 1, 4))
    there(3, dtype=torch.complex64).std()
    there(3).requires_grad_().std().backward()
    F.conv2d(there(1, 1, 2, 2), there(70000, 1, 1, 1))  # this Mac's macOS is newer than 15.1


def test_convolutions_before_macos_15_1() -> None:
    """On an older macOS no dimension of a convolution's result passes 65536."""
    run = run_python(
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
