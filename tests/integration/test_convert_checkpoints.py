"""`anymps convert` on large files, and beside the libraries whose formats it reads and writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from anymps.checkpoints import convert
from processes import run_python

safetensors_torch = pytest.importorskip("safetensors.torch", reason="the `integration` extra brings safetensors")

pytestmark = pytest.mark.integration

F64 = torch.float64

# The peak of resident memory; getrusage would count what the parent had before the fork.
PEAK = """
import re, sys
from pathlib import Path
import torch
from anymps.checkpoints import convert
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024
"""


@pytest.mark.slow
@pytest.mark.parametrize("to", [None, "safetensors"])
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux's /proc")
def test_memory(tmp_path: Path, to: str | None) -> None:
    """A file of 320 MB is converted in the memory of its new tensors and 100 MB more than Python and torch need."""
    big = torch.zeros(20_000_000, dtype=F64)
    torch.save(
        {"big": big, **{f"w{index}": torch.zeros(2_000_000, dtype=F64) for index in range(10)}}, tmp_path / "in.pt"
    )
    code = f"""
        {PEAK.strip().replace(chr(10), chr(10) + " " * 8)}
        torch.frombuffer(bytearray(64), dtype=torch.float64).float().isinf().any()
        before = peak()
        convert(Path({str(tmp_path / "in.pt")!r}), Path({str(tmp_path / "out")!r}), to={to!r})
        print(peak() - before)
    """
    (more,) = run_python(code).lines
    assert int(more) < 320 + 160 + 100  # the file is mapped: its pages count, though the system may take them back


def test_as_the_library_reads_and_writes(tmp_path: Path) -> None:
    """The safetensors library reads what we write, and we read what it writes, of every type that both know."""
    dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    dtypes += ["uint16", "uint32", "uint64", "complex64", "float8_e4m3fn", "float8_e5m2"]
    tensors = {f"é.{name}": torch.tensor([[1.0, 0.0, 3.0]]).to(getattr(torch, name)) for name in dtypes}
    expected = {name: tensor.float() if tensor.dtype == F64 else tensor for name, tensor in tensors.items()}
    safetensors_torch.save_file(tensors, tmp_path / "in.safetensors", {"format": "pt"})
    torch.save(tensors, tmp_path / "in.pt")
    convert(tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    convert(tmp_path / "in.pt", tmp_path / "converted.safetensors", to="safetensors")
    for name in ("out.safetensors", "converted.safetensors"):
        new = safetensors_torch.load_file(tmp_path / name)
        assert new.keys() == expected.keys()
        for key, tensor in expected.items():
            assert new[key].dtype == tensor.dtype
            assert torch.equal(new[key].view(torch.uint8), tensor.view(torch.uint8))


def test_tied_weights_by_the_library(tmp_path: Path) -> None:
    """Tied weights in a safetensors file come back tied with the library's load_model."""

    def model() -> Any:
        module = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)).double()
        module[1].weight = module[0].weight
        return module

    old, new = model(), model().float()
    torch.save(old.state_dict(), tmp_path / "in.pt")
    convert(tmp_path / "in.pt", tmp_path / "out.safetensors", to="safetensors")
    assert safetensors_torch.load_model(new, tmp_path / "out.safetensors") == (set(), [])
    assert torch.equal(new[1].weight, old[1].weight.float())
    assert new[1].weight is new[0].weight
