"""The extension of `extension.cpp`, compiled once for the installed torch and loaded."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import torch

from anymps.metal import cache_directory, find_compiler, find_or_make, tool_key

_SOURCE = Path(__file__).with_name("extension.cpp")


@functools.cache
def extension() -> Any:
    """Its operators. They are on the stable ABI of the installed release."""
    major, minor = map(int, torch.__version__.split(".")[:2])
    root = Path(torch.__file__).parent
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", f"-DTORCH_TARGET_VERSION={major << 56 | minor << 48:#x}"]
    flags += ["-isystem", str(root / "include"), f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
    compiler = find_compiler()
    text = f"{tool_key(compiler)}\0{torch.__version__}\0{flags}\0".encode() + _SOURCE.read_bytes()

    def make(library: Path) -> None:
        subprocess.run([*compiler.command, str(_SOURCE), *flags, "-o", str(library)], check=True, capture_output=True)

    library = find_or_make(cache_directory("tests"), hashlib.sha256(text).hexdigest()[:16], ".so", make)
    torch.ops.load_library(str(library))
    return torch.ops.anymps_tests
