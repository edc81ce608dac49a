"""What users reported about random numbers, files and processes on mps, replayed: each test names its public issue."""

from __future__ import annotations

import io
import os
import warnings
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from anymps.rules import Family, installed_torch, version_rules
from anymps.rules.texts import (
    devices_differ,
    generator_device,
    generator_index,
    shared_memory,
)
from device.compare import assert_same, text_of, values
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = installed_torch().version.release

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked on POSIX systems only")

FORKED = (
    "anymps: the mps device was used before this process was forked, and a Mac crashes or hangs when a forked child "
    "uses Metal; keep mps out of this process (a DataLoader's workers should make CPU tensors, moved in the main "
    "process), or start it with the 'spawn' method, which is the default on a Mac"
)


def saved(content: Any) -> io.BytesIO:
    """`content` after torch.save, ready to load."""
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return file


# random numbers


def test_shuffling_where_mps_is_the_default_device() -> None:
    """pytorch/pytorch#110820: RandomSampler brings a CPU generator; one on mps helps (pytorch/pytorch#115287)."""
    data = TensorDataset(torch.arange(8))
    with torch.device("mps"):
        text = text_of(RuntimeError, lambda: next(iter(DataLoader(data, shuffle=True))))
        assert text == generator_index("mps:0", "cpu").text
        batches = list(DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator("mps")))
    assert list(range(8)) == sorted(batches[0][0].tolist())


def test_shuffling_with_an_mps_generator_alone() -> None:
    """lincc-frameworks/hyrax#924: without the default device, the loader's own CPU draws refuse an mps generator."""
    loader = DataLoader(TensorDataset(torch.arange(4)), shuffle=True, generator=torch.Generator("mps"))
    expected = devices_differ(Family.PLACEHOLDER) if RELEASE < (2, 13) else generator_device("cpu", "mps")
    assert text_of(RuntimeError, lambda: list(loader)) == expected.text


def test_generators_have_an_index() -> None:
    """pytorch/pytorch#106117: a generator made for mps serves randperm on mps:0 (pytorch/pytorch#112188)."""
    generator = torch.Generator("mps")
    assert torch.device("mps:0") == generator.device
    assert list(range(5)) == sorted(torch.randperm(5, device="mps", generator=generator).tolist())


def test_the_state_of_a_generator() -> None:
    """pytorch/pytorch#130613: a second generator with the state goes on with the same numbers."""
    first = torch.Generator("mps").manual_seed(42)
    torch.empty(9, device="mps").exponential_(1, generator=first)
    second = torch.Generator("mps")
    second.set_state(first.get_state())
    expected = torch.empty(9, device="mps").exponential_(1, generator=first)
    assert_same(torch.empty(9, device="mps").exponential_(1, generator=second), expected.cpu())


def test_resuming_training_with_dropout() -> None:
    """huggingface/lerobot#4014: torch.mps.get_rng_state and set_rng_state carry the masks over."""
    state = torch.mps.get_rng_state()
    first = nn.functional.dropout(torch.ones(100, device="mps"))
    torch.mps.set_rng_state(state)
    assert_same(nn.functional.dropout(torch.ones(100, device="mps")), first.cpu())


def test_checkpointed_dropout() -> None:
    """pytorch/pytorch#127676: activation checkpointing does not restore mps' random state, so gradients are wrong."""
    x = torch.ones(1000, device="mps", requires_grad=True)
    y = checkpoint(lambda x: nn.functional.dropout(x).exp(), x, use_reentrant=False)
    y.sum().backward()
    assert not torch.equal(x.grad > 0, y > 1)  # the elements that dropped out are not those without a gradient
    assert not hasattr(torch.mps, "device")  # what the reporter's libraries asked for


# files


def test_loading_where_it_was_not_saved() -> None:
    """pytorch/pytorch#87504: a file written on mps opens with map_location."""
    loaded = torch.load(saved({"w": torch.ones(2, device="mps")}), map_location=torch.device("cpu"))
    assert torch.equal(loaded["w"], torch.ones(2))


def test_loading_onto_an_index() -> None:
    """pytorch/pytorch#77874: map_location=torch.device("mps:0")."""
    for location in (torch.device("mps:0"), "mps", "mps:0"):
        assert_same(torch.load(saved(torch.ones(2)), map_location=location), torch.ones(2))


def test_a_checkpoint_written_on_cuda() -> None:
    """nari-labs/dia#10: torch.load asks torch.mps for its current device to place a CUDA file, and there is none."""
    text = text_of(AttributeError, torch.load, saved(torch.ones(2)), map_location="cuda")
    assert text == "module 'torch.mps' has no attribute 'current_device'"


def test_asking_for_the_current_device() -> None:
    """pytorch/pytorch#150091: torch.mps has no current_device; torch.accelerator has."""
    assert text_of(AttributeError, getattr, torch.mps, "current_device") == (
        "module 'torch.mps' has no attribute 'current_device'"
    )
    assert 0 == torch.accelerator.current_device_index()


def test_scripted_modules_load_onto_mps(tmp_path: Path) -> None:
    """pytorch/pytorch#88820: torch.jit.load(map_location="mps")."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / "m.pt"))
        module = torch.jit.load(str(tmp_path / "m.pt"), map_location=torch.device("mps"))
    assert module.weight.is_mps
    assert module(torch.ones(1, 2, device="mps")).is_mps


# pinned memory


def test_a_loader_that_pins() -> None:
    """torchgeo/torchgeo-bench#253: pin_memory=True warns once a loader and pins nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (batch,) = DataLoader(TensorDataset(torch.ones(2)), batch_size=2, pin_memory=True)
    assert [str(warning.message) for warning in caught] == [
        "'pin_memory' argument is set as true but not supported on MPS now, device pinned memory won't be used."
    ]
    assert not batch[0].is_pinned()


@pytest.mark.skipif(version_rules(torch.__version__).pinned_memory_works, reason="pinned memory works from torch 2.14")
@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build pins memory by CUDA's own allocator")
def test_a_pinned_tensor_claims_to_be_on_mps() -> None:
    """pytorch/pytorch#181374: `empty(device="cpu", pin_memory=True).device` is mps:0 up to 2.13."""
    assert torch.device("mps:0") == torch.empty((1, 1), device="cpu", pin_memory=True).device


# processes


def test_sending_a_result_to_another_process() -> None:
    """hao-ai-lab/FastVideo#1846: a pipe or queue cannot take mps tensors; on the CPU they pass."""
    strategy = torch.multiprocessing.get_sharing_strategy()
    assert text_of(RuntimeError, ForkingPickler.dumps, {"output": values(2).to("mps")}) == shared_memory(strategy).text
    assert ForkingPickler.dumps({"output": values(2).to("mps").cpu()})


def test_the_strategy_of_macos() -> None:
    """pytorch/pytorch#87688: a dataset with mps tensors, sent to spawned workers with strategy file_system."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        text = text_of(RuntimeError, ForkingPickler.dumps, TensorDataset(values(2).to("mps")))
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    assert text == shared_memory("file_system").text == "_share_filename_: only available on CPU"


def test_hogwild_shares_nothing() -> None:
    """pytorch/examples#1105: model.share_memory() on mps raises up to torch 2.12, and does nothing since."""
    model = nn.Linear(2, 2, device="mps")
    pointer = model.weight.data_ptr()
    if RELEASE < (2, 13):
        strategy = torch.multiprocessing.get_sharing_strategy()
        assert text_of(RuntimeError, model.share_memory) == shared_memory(strategy).text
        return
    assert model.share_memory() is model
    assert pointer == model.weight.data_ptr()


class OnDevice(torch.utils.data.Dataset[torch.Tensor]):
    """A dataset that moves its items itself, or does not."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index)).to(self.device)


@forks
@pytest.mark.usefixtures("virtual_device")
def test_a_dataset_that_uses_mps_in_forked_workers() -> None:
    """pytorch/pytorch#25302: a dataset on the device with workers (reported for CUDA); workers on the CPU are fine."""
    torch.ones(1, device="mps").item()
    for device, fails in (("cpu", False), ("mps", True)):
        loader = DataLoader(OnDevice(device), num_workers=1, multiprocessing_context="fork")
        if fails:
            text = text_of(RuntimeError, lambda loader=loader: list(loader))
            assert text.startswith("Caught RuntimeError in DataLoader worker process 0.\n")
            assert text.rstrip().endswith(FORKED)
        else:
            assert [[[0.0, 0.0]], [[1.0, 1.0]]] == [batch.tolist() for batch in loader]


@forks
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


@forks
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
