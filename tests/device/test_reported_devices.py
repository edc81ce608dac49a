"""What users reported about tensors on two devices and about indexing, replayed: each test names its public issue."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anymps.rules import Family
from anymps.rules.texts import (
    SAME_GPU_CHECKS,
    devices_differ,
    linear_argument,
    missing_operator,
    slow_convolution_devices,
    tensor_on_cpu,
)
from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
PLACEHOLDER = devices_differ(Family.PLACEHOLDER).text
TWO_DEVICES = devices_differ(Family.ITERATOR, "mps:0", "cpu").text
SLOW_CONVOLUTION = slow_convolution_devices("cpu", "mps:0").text


def test_token_ids_left_on_the_cpu() -> None:
    """EleutherAI/lm-evaluation-harness#1131: an embedding on mps is asked with ids on the CPU."""
    table = nn.Embedding(4, 3, device="mps")
    # an MPSGraph operator up to torch 2.13, a Metal kernel from 2.14
    expected = PLACEHOLDER if RELEASE < (2, 14) else devices_differ(Family.METAL).text
    assert text_of(RuntimeError, table, torch.tensor([0, 1])) == expected


def test_a_linear_layer_says_which_tensor() -> None:
    """YaoYinYing/RFdiffusion#5: F.linear, which names the argument since 2.4 (pytorch/pytorch#130790)."""
    x = torch.ones(1, 2, device="mps")
    assert text_of(RuntimeError, nn.Linear(2, 2), x) == linear_argument("weight", "cpu").text
    assert text_of(RuntimeError, nn.Linear(2, 2).to("mps"), x.cpu()) == linear_argument("input", "cpu").text


def test_lstm_states_left_on_the_cpu() -> None:
    """pytorch/pytorch#90440: h0 and c0 made without a device."""
    lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True).to("mps")
    x = torch.ones(5, 2, 3, device="mps")
    states = torch.zeros(2, 5, 4), torch.zeros(2, 5, 4)
    assert text_of(RuntimeError, lstm, x, states) == PLACEHOLDER
    assert text_of(RuntimeError, lstm, x, (states[0].to("mps"), states[1])) == PLACEHOLDER
    assert lstm(x, tuple(state.to("mps") for state in states))[0].is_mps


def test_an_lstm_left_on_the_cpu() -> None:
    """pytorch/pytorch#102050: with an input on the CPU torch's own check speaks, with one on mps the kernel's."""
    assert text_of(RuntimeError, nn.LSTM(3, 4), torch.ones(2, 1, 3, device="mps")) == PLACEHOLDER
    assert text_of(RuntimeError, nn.LSTM(3, 4).to("mps"), torch.ones(2, 1, 3)) == (
        "Input and parameter tensors are not at the same device, "
        "found input tensor at cpu and parameter tensor at mps:0"
    )


def test_a_convolution_left_on_the_cpu() -> None:
    """pytorch/ignite#2977: the model was not moved."""
    x = torch.ones(1, 1, 4, 4, device="mps")
    assert text_of(RuntimeError, nn.Conv2d(1, 1, 2, bias=False), x) == (
        "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same"
    )


def test_a_bfloat16_convolution_left_on_the_cpu() -> None:
    """loscrossos/core_framepackstudio#4: the names of the types follow the dtype."""
    x = torch.ones(1, 1, 4, 4, dtype=torch.bfloat16, device="mps")
    text = text_of(RuntimeError, F.conv2d, x, torch.ones(1, 1, 2, 2, dtype=torch.bfloat16))
    assert text.startswith("Input type (MPSBFloat16Type) and weight type (")
    assert text.endswith(("BFloat16Type) should be the same", "BFloat16Tensor) should be the same"))


@pytest.mark.parametrize(("layer", "shape"), [(nn.Conv2d, (1, 1, 4, 4)), (nn.Conv1d, (1, 1, 4))])
def test_images_left_on_the_cpu(layer: type[nn.Module], shape: tuple[int, ...]) -> None:
    """Gourieff/comfyui-reactor-node#77: an image on the CPU meets weights on mps (text: pytorch/pytorch#86303)."""
    assert text_of(RuntimeError, layer(1, 1, 2).to("mps"), torch.ones(shape)) == SLOW_CONVOLUTION


@pytest.mark.parametrize(
    ("name", "layer", "shape"),
    [
        ("aten::slow_conv3d_forward", nn.Conv3d(1, 1, 2), (1, 1, 4, 4, 4)),
        ("aten::slow_conv_dilated2d", nn.Conv2d(1, 1, 2, dilation=2), (1, 1, 4, 4)),
        ("aten::slow_conv_transpose2d.out", nn.ConvTranspose2d(1, 1, 2), (1, 1, 4, 4)),
        ("aten::slow_conv_transpose3d", nn.ConvTranspose3d(1, 1, 2), (1, 1, 4, 4, 4)),
    ],
)
def test_other_convolutions_of_an_input_on_the_cpu(name: str, layer: nn.Module, shape: tuple[int, ...]) -> None:
    """pytorch/pytorch#117949: the CPU's slow path meets weights on mps, and has no kernel there."""
    text = missing_operator(name, str(torch.version.git_version)).text
    assert text_of(NotImplementedError, layer.to("mps"), torch.ones(shape)) == text


def test_a_constant_left_on_the_cpu() -> None:
    """DanielAvdar/tabnet#277: mm with a group matrix that is no buffer."""
    text = tensor_on_cpu(SAME_GPU_CHECKS["mm"], ["mat2"])
    assert text is not None
    assert text_of(RuntimeError, torch.mm, torch.ones(2, 2, device="mps"), torch.ones(2, 2)) == text.text


def test_hidden_states_of_a_gru() -> None:
    """Lightning-AI/pytorch-lightning#3738: states made on the CPU (reported for CUDA), with a GRU."""
    gru = nn.GRU(3, 4).to("mps")
    assert text_of(RuntimeError, gru, torch.ones(2, 1, 3, device="mps"), torch.zeros(1, 1, 4)) == (
        "Input and hidden tensors are not at the same device, found input tensor at mps:0 and hidden tensor at cpu"
    )


def test_comparing_devices() -> None:
    """qthequartermasterman/hypothesis-torch#66: mps is not mps:0, though tensors asked for on mps are on mps:0."""
    asked, indexed = torch.device("mps"), torch.device("mps:0")
    assert asked != indexed
    assert torch.ones(1, device=asked).device == torch.ones(1, device=indexed).device == indexed


def test_comparing_a_device_with_a_string() -> None:
    """huggingface/diffusers#14642: a torch.device never equals a string; its type does."""
    assert torch.device("mps") != "mps"
    assert torch.ones(1, device="mps").device.type == "mps"


def test_there_is_one_device() -> None:
    """pytorch/pytorch#118495: every Mac has mps:0 only; other indices land there."""
    assert 1 == torch.mps.device_count()
    assert torch.device("mps:0") == torch.ones(1, device="mps:1").device
    assert torch.device("mps:0") == torch.ones(1).to("mps:3").device
    assert text_of(RuntimeError, torch.device, "mps:-1") == "Invalid device string: 'mps:-1'"


def test_data_parallel() -> None:
    """pytorch/pytorch#118495: nn.DataParallel finds no devices to spread over and runs the module."""
    model = nn.DataParallel(nn.Linear(2, 1).to("mps"))
    assert [] == model.device_ids
    assert model(torch.ones(3, 2, device="mps")).is_mps


# indexing


def test_indices_on_mps_of_a_tensor_on_the_cpu() -> None:
    """pytorch/pytorch#81051: CPU tensors take CPU indices only; mps tensors take both."""
    table = torch.arange(9).reshape(3, 3)
    index = torch.tensor([1, 2])
    text = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
    assert text_of(RuntimeError, lambda: table[index.to("mps")]) == text
    assert_same(table.to("mps")[index], table[index])
    assert_same(table.to("mps")[[1, 2], [2, 1]], torch.tensor([5, 7]))


def test_values_on_the_cpu_for_chosen_elements() -> None:
    """pytorch/pytorch#86975: values from the CPU go into slices; for indices and masks only a single value does."""
    x = torch.zeros(3, 2, device="mps")
    x[1:, 1] = torch.tensor([-1.0, -2.0])
    x[torch.tensor([0], device="mps"), 0] = torch.tensor([5.0])
    assert_same(x, torch.tensor([[5.0, 0.0], [0.0, -1.0], [0.0, -2.0]]))
    assert text_of(RuntimeError, lambda: x.__setitem__(x < 0, torch.ones(2))) == TWO_DEVICES
    rows = torch.tensor([0, 2], device="mps")
    assert text_of(RuntimeError, lambda: x.__setitem__(rows, torch.ones(2, 2))) == TWO_DEVICES
    assert text_of(RuntimeError, x.index_put_, (rows,), torch.ones(1, 2)) == TWO_DEVICES


def test_writing_mps_rows_into_a_cpu_tensor() -> None:
    """pytorch/pytorch#108978: `cpu[i][j] = mps` once wrote to the first row always."""
    result = torch.zeros(2, 2, 3)
    for i in range(2):
        for j in range(2):
            result[i][j] = torch.full((3,), i + 2.0 * j, device="mps")
    assert [[0.0, 2.0], [1.0, 3.0]] == result[..., 0].tolist()


def test_writing_single_mps_values_into_a_cpu_tensor() -> None:
    """pytorch/pytorch#123836: `M[1, 1] = mps` of one element."""
    m = torch.zeros(3, 3)
    m[1, 1] = torch.tensor([3.0], device="mps")
    m[-1, -1] = torch.tensor([-3.0], device="mps")
    m[0, 1] = torch.tensor(32.0, device="mps")
    assert [[0.0, 32.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, -3.0]] == m.tolist()


def test_choosing_by_an_mps_target_in_a_loop() -> None:
    """pytorch/pytorch#86153: comparing with an mps element and writing mps scalars to the CPU."""
    source = values(3, 2).to("mps")
    target = torch.tensor([0, 1, 1], device="mps")
    z = torch.zeros(3, 2)
    for n in range(3):
        for c in range(2):
            z[n, c] = source[n, c] if c == target[n] else -source[n, c]
    sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [-1.0, 1.0]])
    assert torch.equal(values(3, 2) * sign, z)


def test_moving_an_element() -> None:
    """pytorch/pytorch#86052: `x[1].to("mps")` once moved x[0]."""
    x = torch.arange(2)
    assert 1 == x[1].detach().to("mps").item()


def test_elements_keep_their_values() -> None:
    """pytorch/pytorch#78107: two elements moved one by one compare as on the CPU."""
    a = torch.tensor([8.2670e-01, -1.0293])
    b, c = a[0].to("mps"), a[1].to("mps")
    assert bool(b > c)
    assert not bool(c > b)


def test_a_mask_chooses_in_one_dimension() -> None:
    """pytorch/pytorch#88973: `v[v > 5]`."""
    v = torch.arange(10, device="mps")
    assert_same(v[v > 5], torch.arange(6, 10))


def test_a_mask_chooses_in_two_dimensions() -> None:
    """pytorch/pytorch#125100: `x[mask]` of a matrix, and masked_select."""
    x = torch.tensor([[1, 0, 2, 0, -100, -100, -100]] * 2)
    mask = x >= 0
    for chosen in (x.to("mps")[mask.to("mps")], x.to("mps").masked_select(mask.to("mps")), x.to("mps")[mask]):
        assert_same(chosen, torch.tensor([1, 0, 2, 0, 1, 0, 2, 0]))


def test_assigning_through_a_mask() -> None:
    """pytorch/pytorch#126919: `x[x == 2] = -1` missed elements."""
    x = torch.tensor([[1, 2, 2], [1, 2, 3]], device="mps")
    x[x == 2] = -1
    assert_same(x, torch.tensor([[1, -1, -1], [1, -1, 3]]))


def test_positions_of_a_value() -> None:
    """pytorch/pytorch#122233: torch.where(condition) gives the CPU's positions."""
    x = values(50, dtype=torch.int64)
    assert_same(torch.where(x.to("mps") == 8)[0], torch.where(x == 8)[0])


def test_pairs_of_indices() -> None:
    """pytorch/pytorch#77959: `y.transpose(0, 1)[arange, indices]`."""
    y, index = values(4, 3), torch.tensor([2, 0, 3])
    expected = y.transpose(0, 1)[torch.arange(3), index]
    assert_same(y.to("mps").transpose(0, 1)[torch.arange(3), index.to("mps")], expected)


def test_index_copy_with_gradients() -> None:
    """pytorch/pytorch#166237: index_copy with every index once gives the CPU's values."""
    index = torch.tensor([3, 0, 4, 1, 2])
    x, source = values(5), values(5, seed=1)
    expected = torch.index_copy(x, 0, index, source)
    assert_same(torch.index_copy(x.to("mps"), 0, index.to("mps"), source.to("mps")), expected)
