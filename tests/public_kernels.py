"""Metal kernels of other people's public repositories, read from checkouts of them; nothing of theirs is kept here."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

VARIABLE = "ANYMPS_PUBLIC_KERNELS"
COMMITS = {  # what was tried; another state of a repository may serve as well
    "mpsops/mps-bitsandbytes": "a3d731dac2159eaa8f73a0a863a709c96b0b3f46",
    "ShoYamanishi/AppleNumericalComputing": "053f06c1f5a831095c4bcc29aaf11366fce5231e",
    "pierotofy/OpenSplat": "15b7e80016bb25107f07956b5682231f226f62b9",
    "carni-ships/zkMetal": "874995ef7668d4a0496990812001dbbed3153450",
    "RESMP-DEV/metal-marlin": "a901e528386b1a096c02e15738d88cbbc7268023",
    "pytorch/ao": "36027d82d1ad9949597ea16002ff4940374b1b94",
    "huggingface/candle": "2a13b0f3ff62f7e67013597f2996f764c5735e21",
    "zeux/calm": "cab0b7b44965e7deeb12a6a188b7d64ce224498e",
}
_INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


@cache
def library(repository: str, *files: str) -> Any:
    """The kernels of the files, one behind the other, as the repository's own build joins them.

    Skips the test where there is no checkout of the repository.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(
            f"{VARIABLE} names no folder of checkouts: git clone https://github.com/OWNER/NAME into OWNER/NAME there"
        )
    root = Path(folder) / repository
    if not root.is_dir():
        pytest.skip(f"{root} is not there: git clone https://github.com/{repository}, commit {COMMITS[repository]}")
    seen: set[Path] = set()
    return torch.mps.compile_shader("".join(_joined(root / file, seen) for file in files))


def _joined(path: Path, seen: set[Path]) -> str:
    """A source with its own headers in their places, each once."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _INCLUDE.match(line)
        if found is None:
            lines.append("" if line.strip() == "#pragma once" else line)
            continue
        header = (path.parent / found[1]).resolve()
        if header not in seen:
            seen.add(header)
            lines.append(_joined(header, seen))
    return "\n".join(lines) + "\n"


def on_mps(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors on the device."""
    return [tensor.to("mps") for tensor in tensors]


def empty(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of zeros on the device."""
    return torch.zeros(*sizes, dtype=dtype, device="mps")


def words(*values: int) -> torch.Tensor:
    """A struct of 32-bit integers."""
    return torch.tensor(values, dtype=torch.int32, device="mps")
