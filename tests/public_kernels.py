"""Metal kernels of other people's public repositories, read from checkouts of them; nothing of theirs is kept here.

`python -m tests.public_kernels` fetches the checkouts into the folder that ANYMPS_PUBLIC_KERNELS names.
"""

from __future__ import annotations

import os
import re
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps._settings import variable_of
from anymps.metal import ShaderFaultWarning, take_shader_faults
from anymps.metal.compilation._compile import FIBERS_VARIABLE

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
    "ml-explore/mlx": "846d176227a0ac13d2667e58d2bb68b322109ab0",
    "ggml-org/ggml": "d99724f2b141fed9e1a9f402213506c081433465",
    "huggingface/kernels-community": "40d4194f48b6775c4be4776ed08035fabb0e758f",
    "EricLBuehler/mistral.rs": "9e922623f24b32d41f3892b74f0eed18707f4e6c",
    "pytorch/vision": "c33b16a9c02c1db29077a2f62f557b955a475a31",
    "pytorch/pytorch": "437755bba369e7aa6c4bd400a9a2eb7f0f036ac5",
}
LARGE = {"pytorch/pytorch"}  # gigabytes for one file: whoever has a checkout puts it there
_IN_MLX = "mlx/backend/metal/kernels"
_INCLUDE = re.compile(r'\s*#\s*(?:include|import)\s*[<"]([^>"]+)[>"]')
_CONSTANT = re.compile(r"constant\s+(\w+)\s+(\w+)\s*\[\[\s*function_constant\([^)]*\)\s*\]\]\s*;")

_SHARED_PARAMETER = re.compile(r"threadgroup\s+(\w+)\s*\*\s*(\w+)\s*\[\[threadgroup\(0\)\]\],")
_SHARED = re.compile(
    r"((?:\bkernel void|\[\[kernel\]\] void) \w+\([^{;]*?)" + _SHARED_PARAMETER.pattern + r"([^{;]*)\{"
)


def root_of(repository: str) -> Path:
    """The checkout of a repository. Skips the test where there is none."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(
            f"{VARIABLE} names no folder of checkouts: git clone https://github.com/OWNER/NAME into OWNER/NAME there"
        )
    root = Path(folder) / repository
    if not root.is_dir():
        pytest.skip(f"{root} is not there: git clone https://github.com/{repository}, commit {COMMITS[repository]}")
    return root


def joined(root: Path, files: Sequence[str], folders: Sequence[str] = ()) -> str:
    """The files, one behind the other, with the repository's own headers in their places, each once."""
    seen: set[Path] = set()
    texts = []
    for file in files:
        path = (root / file).resolve()
        if path not in seen:
            seen.add(path)
            texts.append(_joined(path, [root, *(root / folder for folder in folders)], seen))
    return "".join(texts)


def _joined(path: Path, folders: Sequence[Path], seen: set[Path]) -> str:
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _INCLUDE.match(line)
        if found is None:
            lines.append("" if line.strip() == "#pragma once" else line)
            continue
        places = ((folder / found[1]).resolve() for folder in (path.parent, *folders))
        header = next((place for place in places if place.is_file()), None)
        if header is None:
            lines.append(line)
        elif header not in seen:
            seen.add(header)
            lines.append(_joined(header, folders, seen))
    return "\n".join(lines) + "\n"


def with_threadgroup_memory(source: str, size: int = 8192) -> str:
    """The source with threadgroup memory in the kernels in place of parameters, as a program for torch has to do it.

    `size` is that of each, in bytes.
    """

    def declared(match: re.Match[str]) -> str:
        array = f"threadgroup {match[2]} {match[3]}[{size} / sizeof({match[2]})];"
        return f"{match[1]}{match[4]}{{ {array}"

    return _SHARED_PARAMETER.sub("", _SHARED.sub(declared, source))


def with_constants(source: str, values: Mapping[str, str]) -> str:
    """The source with the values of function constants written in, as a program for torch has to do it."""

    def value(match: re.Match[str]) -> str:
        return f"constant constexpr {match[1]} {match[2]} = {values[match[2]]};" if match[2] in values else match[0]

    return _CONSTANT.sub(value, source)


@cache
def library(repository: str, *files: str) -> Any:
    """The kernels of the files, one behind the other, as the repository's own build joins them."""
    return both_forms(joined(root_of(repository), files))


@cache
def both_forms(source: str) -> BothForms:
    """The kernels of a source in the plain form, the checked one, and without loops over a group."""
    return BothForms(source)


class BothForms:
    """A library whose kernels run in all forms: what they write must be the same, bit by bit."""

    def __init__(self, source: str) -> None:
        self._plain = torch.mps.compile_shader(source)
        self._others = {
            "checked form": _compiled_with(variable_of("check_shaders"), "all", source),
            "form with fibers": _compiled_with(FIBERS_VARIABLE, "1", source),
        }

    def __getattr__(self, name: str) -> Callable[..., None]:
        plain = getattr(self._plain, name)

        def run(*arguments: Any, **options: Any) -> None:
            again = {}
            for form in self._others:
                copies: dict[int, torch.Tensor] = {}
                again[form] = [_copied(a, copies) if isinstance(a, torch.Tensor) else a for a in arguments]
            plain(*arguments, **options)
            for form, other in self._others.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ShaderFaultWarning)
                    getattr(other, name)(*again[form], **options)
                take_shader_faults()
                for ours, theirs in zip(arguments, again[form], strict=True):
                    if isinstance(ours, torch.Tensor):
                        a, b = (t.cpu().contiguous().reshape(-1).view(torch.uint8) for t in (ours, theirs))
                        assert torch.equal(a, b), f"{name}: the {form} wrote something else"

        return run


def _compiled_with(variable: str, value: str, source: str) -> Any:
    """The library as it is compiled while an environment variable is set."""
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        return torch.mps.compile_shader(source)
    finally:
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before


def _copied(tensor: torch.Tensor, copies: dict[int, torch.Tensor]) -> torch.Tensor:
    """The same view of a copy of its storage, one copy for all views."""
    if tensor.device.type != "mps":
        return tensor
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in copies:
        whole = tensor.as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)
        copies[storage.data_ptr()] = whole.clone()
    return copies[storage.data_ptr()].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def mlx(*files: str, instances: str = "", constants: Mapping[str, str] | None = None, text: str = "") -> BothForms:
    """Headers of MLX with these instances, and this text, behind, as its own just-in-time compiler writes them."""
    headers = joined(root_of("ml-explore/mlx"), [f"{_IN_MLX}/{file}" for file in ("defines.h", "utils.h", *files)])
    lines = "".join(f"\ninstantiate_kernel({line.strip()})" for line in instances.strip().splitlines())
    return both_forms(with_constants(headers, constants or {}) + lines + "\n" + text)


def on_mps(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors on the device."""
    return [tensor.to("mps") for tensor in tensors]


def empty(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of zeros on the device."""
    return torch.zeros(*sizes, dtype=dtype, device="mps")


def words(*values: int) -> torch.Tensor:
    """A struct of 32-bit integers."""
    return torch.tensor(values, dtype=torch.int32, device="mps")


def fetch(folder: Path) -> None:
    """Fetches each repository at its commit, the large ones and those that are there already aside."""
    for repository, commit in COMMITS.items():
        target = folder / repository
        if target.is_dir() or repository in LARGE:
            continue
        target.mkdir(parents=True)
        url = f"https://github.com/{repository}"
        for words_ in (["init", "-q"], ["fetch", "-q", "--depth", "1", url, commit], ["checkout", "-q", "FETCH_HEAD"]):
            subprocess.run(["git", *words_], cwd=target, check=True)


if __name__ == "__main__":
    fetch(Path(os.environ[VARIABLE]))
