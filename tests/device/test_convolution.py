"""Convolutions: strides, layouts, batches, devices; tests/conformance has the options of each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from device.compare import same, same_gradients, same_module, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(2, 3),
        lambda x: x[:, :, ::2],
        lambda x: x.flip(0)[1:],
        lambda x: x[:, :1].expand(-1, 4, -1, -1),
    ],
)
def test_inputs_and_weights_of_any_strides(view: Any) -> None:
    """Non-contiguous inputs and weights give the CPU's results, which is what hardware should give (hazards N1, N2)."""
    same_gradients(lambda x, w: F.conv2d(view(x), w), values(2, 4, 8, 8), values(5, 4, 3, 3))
    same_gradients(lambda x, w: F.conv2d(x, w.transpose(2, 3)), values(2, 4, 8, 8), values(5, 4, 3, 2))


def test_unbatched_inputs_and_empty_batches() -> None:
    """An input without batch, and one with none, pass."""
    torch.manual_seed(0)
    same_module(nn.Conv2d(2, 3, 3), values(2, 6, 6))
    same_module(nn.Conv1d(2, 3, 3), values(2, 6))
    same(lambda m, x: m(x), nn.Conv2d(2, 3, 3), values(0, 2, 6, 6))


def test_input_and_weight_on_two_devices() -> None:
    """A CPU input with mps weights, and the other way round, raise the backend's texts."""
    x, w = values(1, 3, 5, 5), values(2, 3, 3, 3)
    text = text_of(RuntimeError, F.conv2d, x, w.to("mps"))
    assert text == "slow_conv2d_forward_mps: input(device='cpu') and weight(device=mps:0')  must be on the same device"
    text = text_of(RuntimeError, F.conv2d, x.to("mps"), w)
    assert text == "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same"


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("what", ["input", "weight", "neither"])
def test_a_graph_knows_the_layout_of_the_result(dims: int, what: str) -> None:
    """torch's fake tensors have the strides that the device gives: Inductor holds one to the other."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    kind = nn.Conv2d if dims == 2 else nn.Conv3d
    conv = kind(3, 4, 3).to("mps", memory_format=last if what == "weight" else torch.contiguous_format)
    x = torch.randn(2, 3, *[6] * dims, device="mps")
    if what == "input":
        x = x.to(memory_format=last)
    real = conv(x)
    mode = FakeTensorMode()
    with mode:
        fake = torch.func.functional_call(
            conv,
            {name: mode.from_tensor(parameter) for name, parameter in conv.named_parameters()},
            (mode.from_tensor(x),),
        )
    assert fake.stride() == real.stride()
    assert real.is_contiguous(memory_format=last) == (what != "neither")
