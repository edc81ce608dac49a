"""Conversions of checkpoints as the tests make them: a sample, a refused one, and what came out."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps import CheckpointError
from anymps.checkpoints import convert
from anymps.commands import main

F64 = torch.float64


def refused(source: str | Path, target: str | Path = "out.pt", **options: Any) -> str:
    """The one line that a refused conversion gives; that nothing is left beside the target is checked as well."""
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(CheckpointError) as error:
        convert(Path(source), Path(target), **options)
    assert sorted(Path.cwd().rglob("*")) == before
    assert "\n" not in str(error.value)
    return str(error.value)


def loaded(path: str) -> Any:
    """What a torch file holds, read by torch as it reads files that it does not trust."""
    return torch.load(path, weights_only=True)


def read_back(path: str) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def save_sample(path: str, *, old_format: bool = False) -> dict[str, Any]:
    """A checkpoint of a training, as people write them; returns what was saved."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4).double()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, dtype=F64)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "rates": [1e-3, None, "x"]}
    torch.save(value, path, _use_new_zipfile_serialization=not old_format)
    return value


def status_of(*words: str) -> int:
    """Run the command line in this process; return its exit status."""
    return main(["convert", *words])
