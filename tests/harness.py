"""The small C++ programs under tests/native, which drive one native source alone: compiling them, asking them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "anymps" / "device" / "native"


def compile_harness(source: str, subject: str, directory: Path) -> Path:
    """The program `<source>_trace`, built in `directory`; skips, naming the `subject`, where there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip(f"no C++ compiler here: {subject} cannot be compiled (set CXX)")
    binary = directory / f"{source}_trace"
    sources = [str(NATIVE / "model" / f"{source}.cpp"), str(ROOT / "tests" / "native" / f"{source}_trace.cpp")]
    subprocess.run(
        [*compiler.split(), "-std=c++17", "-O1", "-pthread", f"-I{NATIVE}", *sources, "-o", str(binary)], check=True
    )
    return binary
