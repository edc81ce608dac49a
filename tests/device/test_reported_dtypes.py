"""What users reported about dtypes on mps, replayed: each test names its public issue."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from anymps.rules.texts import float64_allocation
from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional
NO_FLOAT64 = float64_allocation().text


def refused(call: Any, *args: Any, **kwargs: Any) -> None:
    """The call raises the TypeError of every float64 allocation."""
    assert text_of(TypeError, call, *args, **kwargs) == NO_FLOAT64


def test_numpy_data_before_float() -> None:
    """pytorch/pytorch#79019: `from_numpy(data).to("mps").float()` raises; the other order works."""
    data = np.loadtxt(io.StringIO("1 2\n3 4"))
    refused(torch.from_numpy(data).to, "mps")
    assert_same(torch.from_numpy(data).float().to("mps"), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def test_a_float64_tensor_moves() -> None:
    """pytorch/pytorch#122602: moving torch.rand(2, dtype=float64)."""
    refused(torch.rand(2, dtype=torch.float64).to, "mps")


def test_the_python_type_float_is_float64() -> None:
    """pytorch/pytorch#77781: `dtype=float` means float64."""
    refused(torch.ones, 5, device="mps", dtype=float)
    assert torch.float32 == torch.ones(5, device="mps", dtype=torch.float32).dtype


def test_a_reward_from_an_environment() -> None:
    """Lightning-AI/pytorch-lightning#19981: torch.tensor(np.float64, device=...) keeps NumPy's type."""
    reward = np.float64(1.0)
    refused(torch.tensor, reward, device="mps")
    assert torch.float32 == torch.tensor(reward, dtype=torch.float32, device="mps").dtype
    assert torch.float32 == torch.tensor(float(reward), device="mps").dtype


def test_a_model_with_float64_parameters() -> None:
    """unit8co/darts#2326: a forecasting model built from float64 series does not move."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).double()
    refused(model.to, torch.device("mps"))
    assert model.float().to("mps")[0].weight.is_mps


def test_scores_cast_to_float64() -> None:
    """huggingface/transformers#31060: post-processing with `.to(torch.float64)` on the device."""
    refused(torch.ones(3, device="mps").to, torch.float64)


def test_position_embeddings_in_float64() -> None:
    """bghira/SimpleTuner#1523: rotary frequencies with dtype=float64 on the device."""
    refused(torch.arange, 0, 8, 2, dtype=torch.float64, device="mps")
    assert_same(torch.arange(0, 8, 2, dtype=torch.float32, device="mps"), torch.arange(0, 8, 2, dtype=torch.float32))


def test_float32_arrays_pass() -> None:
    """pytorch-tabular/pytorch_tabular#533: the same data as np.float32 trains."""
    refused(torch.as_tensor, np.ones((2, 3)), device="mps")
    assert torch.as_tensor(np.ones((2, 3), dtype=np.float32), device="mps").is_mps


def test_type_before_the_move() -> None:
    """thu-ml/tianshou#1237: `.type(torch.float32)` before `.to("mps")`."""
    action = torch.rand(2, dtype=torch.float64)
    assert_same(action.type(torch.float32).to("mps"), action.float())


def test_type_names_of_mps_tensors_are_not_accepted() -> None:
    """tatp22/multidim-positional-encoding#34: `.type(x.type())` fails, as no legacy type of that name exists."""
    x = torch.ones(2, device="mps")
    assert x.type() == "torch.mps.FloatTensor"
    assert text_of(ValueError, torch.ones(2).type, x.type()) == "invalid type: 'torch.mps.FloatTensor'"
    assert not hasattr(torch.mps, "FloatTensor")


def test_gradient_scaler() -> None:
    """pytorch/pytorch#142397: unscale_ needed float64 once; since 2.8 a scaled step runs on mps."""
    p = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.1)
    scaler = torch.amp.GradScaler("mps")
    scaler.scale((2 * p).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert_same(p.detach(), torch.full((2,), 0.8))
    assert scaler.get_scale() == 65536.0


def test_the_cuda_scaler_is_off() -> None:
    """karpathy/nanoGPT#654: torch.cuda.amp.GradScaler beside mps warns and disables itself."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scaler = torch.cuda.amp.GradScaler(enabled=True)
    assert not scaler.is_enabled()
    assert "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling." in [
        str(warning.message) for warning in caught
    ]


def test_half_precision() -> None:
    """pytorch/pytorch#78168: float16 layers compute on mps, close to float32."""
    layer = nn.Linear(4, 3)
    expected = layer(values(2, 4))
    actual = layer.to("mps", torch.float16)(values(2, 4).to("mps", torch.float16))
    assert torch.float16 == actual.dtype
    torch.testing.assert_close(actual.float().cpu(), expected, rtol=2e-2, atol=2e-2)


def test_bfloat16_embedding() -> None:
    """pytorch/pytorch#104191: an embedding in bfloat16 was once refused."""
    table = values(5, 3).bfloat16()
    ids = torch.tensor([0, 4])
    assert_same(F.embedding(ids.to("mps"), table.to("mps")), F.embedding(ids, table))


def test_bfloat16_model() -> None:
    """pytorch/torchchat#616: `model.to("mps", torch.bfloat16)`, which macOS 13 refused."""
    model = nn.Linear(2, 2).to(device="mps", dtype=torch.bfloat16)
    assert torch.bfloat16 == model(torch.ones(1, 2, device="mps", dtype=torch.bfloat16)).dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autocast_to_another_type(dtype: torch.dtype) -> None:
    """hvoss-tech/AutoForge#55: autocast with a type other than the two warns and stays off."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast("mps", dtype=dtype):
            y = torch.ones(2, 2, device="mps") @ torch.ones(2, 2, device="mps")
    assert [str(warning.message) for warning in caught] == [
        "In MPS autocast, but the target dtype is not supported. Disabling autocast.\n"
        "MPS Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
    ]
    assert torch.float32 == y.dtype


def test_autocast_to_bfloat16_is_silent() -> None:
    """pytorch/pytorch#139190: bfloat16 was warned of although the text names it."""
    with warnings.catch_warnings(record=True) as caught, torch.autocast("mps", dtype=torch.bfloat16):
        warnings.simplefilter("always")
        y = torch.ones(2, 2, device="mps") @ torch.ones(2, 2, device="mps")
    assert [] == caught
    assert torch.bfloat16 == y.dtype


def test_image_bytes_into_a_convolution() -> None:
    """pytorch/pytorch#88978: uint8 images into float weights."""
    images = torch.ones(1, 3, 4, 4, dtype=torch.uint8, device="mps")
    text = text_of(RuntimeError, nn.Conv2d(3, 2, 1, bias=False).to("mps"), images)
    assert text == "Input type (MPSByteType) and weight type (MPSFloatType) should be the same"
    text = text_of(RuntimeError, nn.Conv2d(3, 2, 1).to("mps"), images)
    assert text == "Input type (unsigned char) and bias type (float) should be the same"


def test_float_input_into_a_half_convolution() -> None:
    """Mikubill/sd-webui-controlnet#1267: a float32 latent into float16 weights."""
    weight = torch.ones(1, 1, 2, 2, dtype=torch.float16, device="mps")
    text = text_of(RuntimeError, F.conv2d, torch.ones(1, 1, 4, 4, device="mps"), weight)
    assert text == "Input type (MPSFloatType) and weight type (MPSHalfType) should be the same"


def test_assigning_integers_to_a_float_slice() -> None:
    """pytorch/pytorch#95417: `t[2:4] = long` went to the wrong place in 1.13."""
    t = torch.zeros(5, device="mps")
    t[2:4] = torch.ones(2, device="mps").long()
    assert_same(t, torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0]))


def test_float64_assigned_to_a_float32_tensor() -> None:
    """pytorch/pytorch#122602: a float64 CPU value written into an mps tensor is cast on the CPU and passes."""
    t = torch.zeros(3, device="mps")
    t[1:] = torch.from_numpy(np.array([1.5, 2.5]))
    t[0] = np.float64(0.5)
    assert_same(t, torch.tensor([0.5, 1.5, 2.5]))
