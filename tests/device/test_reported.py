"""What users reported about mps, replayed: each test names its public issue."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from anymps.rules import Family, installed_torch, version_rules
from anymps.rules.texts import devices_differ, generator_device, missing_operator
from device.compare import assert_same, text_of
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional
RELEASE = installed_torch().version.release
GIT = str(torch.version.git_version)
TWO_DEVICES = devices_differ(Family.ITERATOR, "mps:0", "cpu").text


FORKED = (
    "anymps: the mps device was used before this process was forked, and a Mac crashes or hangs when a forked child "
    "uses Metal; keep mps out of this process (a DataLoader's workers should make CPU tensors, moved in the main "
    "process), or start it with the 'spawn' method, which is the default on a Mac"
)


def test_convolutions_of_two_types() -> None:
    """pytorch/pytorch#88978: uint8 images; Mikubill/sd-webui-controlnet#1267: float32 latents into float16 weights."""
    images = torch.ones(1, 3, 4, 4, dtype=torch.uint8, device="mps")
    text = text_of(RuntimeError, nn.Conv2d(3, 2, 1, bias=False).to("mps"), images)
    assert text == "Input type (MPSByteType) and weight type (MPSFloatType) should be the same"
    text = text_of(RuntimeError, nn.Conv2d(3, 2, 1).to("mps"), images)
    assert text == "Input type (unsigned char) and bias type (float) should be the same"
    weight = torch.ones(1, 1, 2, 2, dtype=torch.float16, device="mps")
    text = text_of(RuntimeError, F.conv2d, torch.ones(1, 1, 4, 4, device="mps"), weight)
    assert text == "Input type (MPSFloatType) and weight type (MPSHalfType) should be the same"


def test_a_bfloat16_convolution_left_on_the_cpu() -> None:
    """loscrossos/core_framepackstudio#4: the names of the types follow the dtype."""
    x = torch.ones(1, 1, 4, 4, dtype=torch.bfloat16, device="mps")
    text = text_of(RuntimeError, F.conv2d, x, torch.ones(1, 1, 2, 2, dtype=torch.bfloat16))
    assert text.startswith("Input type (MPSBFloat16Type) and weight type (")
    assert text.endswith(("BFloat16Type) should be the same", "BFloat16Tensor) should be the same"))


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
    text = missing_operator(name, GIT).text
    assert text_of(NotImplementedError, layer.to("mps"), torch.ones(shape)) == text


def test_there_is_one_device() -> None:
    """pytorch/pytorch#118495: every Mac has mps:0 only; other indices land there, and DataParallel finds none.

    MPSGuardImpl.h knows no other device and checks the type alone.
    """
    assert torch.device(1) == torch.device("mps:1")
    there = (torch.ones(1, device="mps:1"), torch.ones(1, device=1), torch.ones(1).to("mps:3"), torch.ones(1).to(1))
    assert {tensor.device for tensor in there} == {torch.device("mps:0")}
    assert text_of(RuntimeError, torch.device, "mps:-1") == "Invalid device string: 'mps:-1'"
    model = nn.DataParallel(nn.Linear(2, 1).to("mps"))
    assert [] == model.device_ids
    assert model(torch.ones(3, 2, device="mps")).is_mps


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


def test_shuffling_with_an_mps_generator_alone() -> None:
    """lincc-frameworks/hyrax#924: without the default device, the loader's own CPU draws refuse an mps generator."""
    loader = DataLoader(TensorDataset(torch.arange(4)), shuffle=True, generator=torch.Generator("mps"))
    expected = devices_differ(Family.PLACEHOLDER) if RELEASE < (2, 13) else generator_device("cpu", "mps")
    assert text_of(RuntimeError, lambda: list(loader)) == expected.text


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_sparse_csr() -> None:
    """pytorch/pytorch#129842: no CSR tensor can be made on mps (pytorch/pytorch#196192)."""
    csr = torch.eye(2).to_sparse_csr()
    parts = [part.to("mps") for part in (csr.crow_indices(), csr.col_indices(), csr.values())]
    text = "Could not run 'new_compressed_tensor' from the 'mps:0' device.)"
    assert text_of(NotImplementedError, torch.sparse_csr_tensor, *parts) == text
    assert text_of(NotImplementedError, csr.to, "mps") == text


@pytest.mark.skipif(version_rules(torch.__version__).pinned_memory_works, reason="pinned memory works from torch 2.14")
@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build pins memory by CUDA's own allocator")
def test_a_pinned_tensor_claims_to_be_on_mps() -> None:
    """pytorch/pytorch#181374: `empty(device="cpu", pin_memory=True).device` is mps:0 up to 2.13."""
    assert torch.device("mps:0") == torch.empty((1, 1), device="cpu", pin_memory=True).device


@pytest.mark.usefixtures("virtual_device")
def test_every_use_in_a_forked_child_is_refused() -> None:
    """pytorch/pytorch#178037: a forked child hangs or crashes on a Mac; here each use of mps raises."""
    lines = run_with_torch(
        ENABLE
        + """
import os
x = torch.ones(2, device="mps")
if os.fork() == 0:
    for name, use in {
        "operator": lambda: x + 1,
        "allocation": lambda: torch.empty(2, device="mps"),
        "copy": lambda: torch.ones(2).to("mps"),
        "read": lambda: x[0].item(),
        "print": lambda: repr(x),
        "synchronize": torch.mps.synchronize,
        "empty_cache": torch.mps.empty_cache,
        "event": lambda: torch.Event("mps").record(),
        "random": lambda: torch.rand(2, device="mps"),
    }.items():
        try:
            use()
            print(name, "passed")
        except RuntimeError as error:
            print(name, error)
    w = torch.ones(2, requires_grad=True)
    (2 * w).sum().backward()
    del x
    print(torch.mps._is_in_bad_fork(), torch.backends.mps.is_available(), w.grad.tolist(), flush=True)
    os._exit(0)
os.wait()
print((x + 1).tolist())
"""
    ).lines
    uses = ("operator", "allocation", "copy", "read", "print", "synchronize", "empty_cache", "event", "random")
    assert [f"{use} {FORKED}" for use in uses] == lines[:-2]
    assert ["True True [2.0, 2.0]", "[2.0, 2.0]"] == lines[-2:]


@pytest.mark.usefixtures("virtual_device")
def test_a_child_forked_before_the_first_use_may_use_it() -> None:
    """pytorch/pytorch#178037: only a device that was in use does not survive; a fresh one belongs to the child."""
    lines = run_with_torch(
        ENABLE
        + """
import os
if os.fork() == 0:
    print((torch.ones(2, device="mps") + 1).tolist(), flush=True)
    os._exit(0)
os.wait()
print(torch.ones(1, device="mps").item())
"""
    ).lines
    assert ["[2.0, 2.0]", "1.0"] == lines
