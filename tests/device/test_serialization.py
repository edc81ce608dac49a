"""Keeping mps tensors: torch.save and load with every map_location, state_dict loading, pickles, safetensors."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from anymps.rules import installed_torch
from anymps.rules.texts import shared_memory
from device.compare import assert_same, text_of, values
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")


def saved(content: Any, **options: Any) -> io.BytesIO:
    """`content` after torch.save, ready to load."""
    file = io.BytesIO()
    torch.save(content, file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("where", "device"),
    [
        (None, "mps:0"),
        ("mps", "mps:0"),
        ("mps:0", "mps:0"),
        (torch.device("mps"), "mps:0"),
        (torch.device("mps", 0), "mps:0"),
        ("cpu", "cpu"),
        (torch.device("cpu"), "cpu"),
        ({"mps": "cpu"}, "cpu"),
        ({"cpu": "mps"}, "mps:0"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.mps(), "mps:0"),
        (lambda storage, location: None, "mps:0"),
        ("meta", "meta"),
    ],
    ids=lambda value: "a function" if callable(value) else str(value),  # an address differs from run to run
)
@pytest.mark.parametrize("zip_file", [True, False])
def test_load_puts_tensors_where_map_location_says(where: Any, device: str, zip_file: bool) -> None:
    """An mps tensor loads to mps by default and to whatever map_location asks for."""
    if device == "meta" and not zip_file:
        pytest.skip("torch loads to meta from zip files only")
    x = values(3, 4)
    back = torch.load(saved(x.to("mps"), _use_new_zipfile_serialization=zip_file), map_location=where)
    assert device == str(back.device)
    if device != "meta":
        assert torch.equal(x, back.cpu())


@pytest.mark.parametrize("where", ["mps", "mps:0", torch.device("mps")], ids=str)
def test_cpu_tensors_load_to_mps(where: Any) -> None:
    """A file written without mps loads onto it."""
    assert_same(
        torch.load(saved({"a": values(2), "b": [values(3)]}), map_location=where), {"a": values(2), "b": [values(3)]}
    )


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64],
    ids=str,
)
def test_every_dtype_is_kept(dtype: torch.dtype) -> None:
    """save and load keep dtype, shape, strides and flags."""
    x = values(3, 4, dtype=dtype)
    assert_same(torch.load(saved(x.to("mps").t())), x.t())


def test_files_say_mps_without_an_index() -> None:
    """The location in the file is `mps`."""
    seen: list[str] = []

    def look(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage:
        seen.append(location)
        return storage

    torch.load(saved(values(2).to("mps")), map_location=look)
    assert ["mps"] == seen


def test_views_share_their_storage_after_loading() -> None:
    """Two views saved together still share memory; flags and parameters survive."""
    base = values(4, 4).to("mps")
    whole, part, p = torch.load(saved([base, base[1:, ::2], nn.Parameter(base)]), weights_only=False)
    part.fill_(7)
    assert_same(whole[1:, ::2].clone(), torch.full((3, 2), 7.0))
    assert isinstance(p, nn.Parameter)
    assert p.is_mps


def test_state_dict_loads_across_devices_and_with_assign() -> None:
    """load_state_dict copies across devices; with assign=True the tensors themselves are taken."""
    source = nn.Linear(3, 2)
    target = nn.Linear(3, 2, device="mps")
    target.load_state_dict(source.state_dict())
    assert target.weight.is_mps
    assert torch.equal(source.weight, target.weight.cpu())
    state = {name: tensor.to("mps") for name, tensor in source.state_dict().items()}
    empty = nn.Linear(3, 2, device="meta")
    empty.load_state_dict(state, assign=True)
    assert empty.weight.is_mps
    assert empty.weight.data_ptr() == state["weight"].data_ptr()
    source.load_state_dict(target.state_dict())
    assert source.weight.device.type == "cpu"
    text = text_of(RuntimeError, nn.Linear(4, 2, device="mps").load_state_dict, source.state_dict())
    assert "size mismatch for weight" in text


def test_a_file_from_mps_without_the_device() -> None:
    """Where nobody has switched mps on, the storage's constructor refuses, and map_location="cpu" helps."""
    file = saved(values(2).to("mps"))
    code = f"""
        import io, torch
        file = io.BytesIO({file.getvalue()!r})
        try:
            torch.load(file)
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        file.seek(0)
        print(torch.load(file, map_location="cpu").device)
    """
    if torch.backends.mps.is_built() and not _virtual():
        pytest.skip("this torch has mps built in")
    assert ["torch.UntypedStorage(): Storage device not recognized: mps", "cpu"] == run_with_torch(code).lines


def _virtual() -> bool:
    import anymps

    return anymps.is_virtual()


@pytest.mark.parametrize("strategy", ["file_system", "file_descriptor"])
def test_mps_tensors_are_not_sent_to_other_processes(strategy: str) -> None:
    """Sharing a storage between processes raises the backend's text, whatever the strategy."""
    storage = values(2).to("mps").untyped_storage()
    share: Callable[[], Any] = storage._share_filename_cpu_ if strategy == "file_system" else storage._share_fd_cpu_
    assert shared_memory(strategy).text in text_of(RuntimeError, share)


def test_a_queue_between_processes_refuses_them() -> None:
    """What multiprocessing queues do to a tensor fails for mps tensors; a copy on the CPU passes."""
    from multiprocessing.reduction import ForkingPickler

    expected = {shared_memory(strategy).text for strategy in ("file_system", "file_descriptor")}
    text = text_of(RuntimeError, ForkingPickler.dumps, values(2).to("mps"))
    assert any(one in text for one in expected)
    assert torch.equal(values(2), ForkingPickler.loads(ForkingPickler.dumps(values(2).to("mps").cpu())))


def test_share_memory_changes_nothing() -> None:
    """share_memory_() of an mps tensor is a silent no-op from torch 2.13 on; before, it raises."""
    x = values(2).to("mps")
    if installed_torch().version.release < (2, 13):
        assert (
            text_of(RuntimeError, x.share_memory_) == shared_memory(torch.multiprocessing.get_sharing_strategy()).text
        )
        return
    assert x.share_memory_() is x
    assert x.is_shared()


def test_safetensors(tmp_path: Path) -> None:
    """safetensors writes mps tensors and loads them onto mps."""
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors comes with the extra `integration`")
    content = {
        "a": values(3, 4).to("mps"),
        "b": values(2, dtype=torch.bfloat16).to("mps"),
        "c": torch.ones(0, device="mps"),
    }
    safetensors.save_file(content, tmp_path / "x.safetensors")
    for device in ("mps", "mps:0"):
        back = safetensors.load_file(tmp_path / "x.safetensors", device=device)
        assert set(content) == set(back)
        for name, tensor in content.items():
            assert_same(back[name], tensor.cpu())
    assert safetensors.load_file(tmp_path / "x.safetensors")["a"].device.type == "cpu"
    again = safetensors.load(safetensors.save(content))
    assert torch.equal(content["a"].cpu(), again["a"])
    model = nn.Linear(3, 2, device="mps")
    safetensors.save_model(model, str(tmp_path / "m.safetensors"))
    other = nn.Linear(3, 2, device="mps")
    safetensors.load_model(other, str(tmp_path / "m.safetensors"), device="mps")
    assert_same(other.weight.detach(), model.weight.detach().cpu())
