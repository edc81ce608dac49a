"""The small C++ programs under tests/native, which drive or test a part of the native core alone: compiling them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "anymps" / "device" / "native"
PROGRAMS = ROOT / "tests" / "native"


def compile_harness(source: str, subject: str, directory: Path) -> Path:
    """The program `<source>_trace`, built in `directory`; skips, naming the `subject`, where there is no compiler."""
    return compile_program(f"{source}_trace", model_sources(source), subject, directory, "-O1")


def model_sources(source: str) -> list[Path]:
    """The native sources of one part of the model: `heap`, `philox` or `replay`."""
    return sorted((NATIVE / "model").glob(f"{source}*.cpp"))


def compile_program(name: str, sources: list[Path], subject: str, directory: Path, *options: str) -> Path:
    """The program `tests/native/<name>.cpp` with some native sources, built in `directory`."""
    return compile_file(PROGRAMS / f"{name}.cpp", sources, subject, directory, *options)


def compile_file(main: Path, sources: list[Path], subject: str, directory: Path, *options: str) -> Path:
    """The program of `main` and `sources`; skips, naming the `subject`, where there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip(f"no C++ compiler here: {subject} cannot be compiled (set CXX)")
    binary = directory / main.stem
    command = [*compiler.split(), "-std=c++17", *options, "-pthread", f"-I{NATIVE}", f"-I{PROGRAMS}"]
    subprocess.run([*command, str(main), *map(str, sources), "-o", str(binary)], check=True)
    return binary
