"""Convolutions 1d to 3d and transposed: forward and gradients equal the CPU's for every option."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from device.compare import same, same_gradients, same_module, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional
SIZES = {1: (9,), 2: (7, 8), 3: (5, 4, 6)}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"stride": 2},
        {"padding": 1},
        {"dilation": 2},
        {"groups": 2},
        {"groups": 4},
        {"stride": 2, "padding": 1, "groups": 2},
    ],
    ids=str,
)
def test_convolutions_equal_those_of_the_cpu(dims: int, transposed: bool, options: dict[str, Any]) -> None:
    """Output and gradients of input, weight and bias agree for every option and number of dimensions."""
    torch.manual_seed(0)
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    same_module(kind(4, 8, 2 if dims == 3 else 3, **options), values(2, 4, *SIZES[dims]))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [{"padding": "same"}, {"padding": "valid"}, {"padding": 1, "padding_mode": "circular"}], ids=str
)
def test_padding_by_name(dims: int, options: dict[str, Any]) -> None:
    """padding="same", "valid" and padding modes agree with the CPU."""
    torch.manual_seed(0)
    same_module(getattr(nn, f"Conv{dims}d")(2, 3, 3, **options), values(2, 2, *SIZES[dims]))


@pytest.mark.parametrize("output_padding", [0, 1])
def test_output_padding_and_output_size(output_padding: int) -> None:
    """Transposed convolutions take output_padding, and output_size at the call."""
    torch.manual_seed(0)
    same_module(nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=output_padding), values(2, 3, 5, 5))
    same_module(nn.ConvTranspose2d(3, 2, 3, stride=2), values(2, 3, 5, 5), output_size=(12, 12))


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


def test_channels_last_results() -> None:
    """A channels_last input, or weight, gives channels_last out of the layer as on the CPU."""
    module = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    same_module(module, values(2, 4, 8, 8).to(memory_format=torch.channels_last))


def test_unbatched_inputs_and_empty_batches() -> None:
    """An input without batch, and one with none, pass."""
    torch.manual_seed(0)
    same_module(nn.Conv2d(2, 3, 3), values(2, 6, 6))
    same_module(nn.Conv1d(2, 3, 3), values(2, 6))
    same(lambda m, x: m(x), nn.Conv2d(2, 3, 3), values(0, 2, 6, 6))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    """Convolutions run in float16 and bfloat16."""
    same(F.conv2d, values(1, 2, 6, 6, dtype=dtype), values(3, 2, 3, 3, dtype=dtype), padding=1)
    same(F.conv1d, values(1, 2, 6, dtype=dtype), values(3, 2, 3, dtype=dtype))


def test_complex_is_computed() -> None:
    """Complex convolutions are made of real ones."""
    same(F.conv1d, values(1, 2, 6, dtype=torch.complex64), values(3, 2, 3, dtype=torch.complex64))


def test_wrong_shapes_are_refused_as_on_the_cpu() -> None:
    """Channel mismatches and kernels larger than the input raise torch's texts."""
    same(F.conv2d, values(1, 3, 5, 5), values(2, 4, 3, 3))
    same(F.conv2d, values(1, 3, 2, 2), values(2, 3, 3, 3))
    same(F.conv2d, values(3), values(2, 3, 3, 3))


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
