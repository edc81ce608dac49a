"""The small C++ programs under tests/native, which drive or test a part of the native core alone: compiling them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from anymps._atomic import replacing
from anymps._cache import cache_home

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "anymps" / "device" / "native"
PROGRAMS = ROOT / "tests" / "native"


def compile_harness(source: str, subject: str, directory: Path) -> Path:
    """The program `<source>_trace`, built in `directory`; skips, naming the `subject`, where there is no compiler."""
    return compile_program(f"{source}_trace", model_sources(source), subject, directory, "-O1")


def model_sources(source: str) -> list[Path]:
    """The native sources of one part of the model, `heap`, `philox` or `replay`, and the locks that it takes."""
    return sorted((*(NATIVE / "locks").glob("*.cpp"), *(NATIVE / "model").glob(f"{source}*.cpp")))


def compile_program(name: str, sources: list[Path], subject: str, directory: Path, *options: str) -> Path:
    """The program `tests/native/<name>.cpp` with some native sources, in `directory`: built, or of earlier tests."""
    main = PROGRAMS / f"{name}.cpp"
    kept = _kept(_compiler(subject), options, [main, *sources])
    if not kept.exists():
        made = compile_file(main, sources, subject, directory, *options)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as file:
            file.write(made.read_bytes())
    binary = directory / name
    shutil.copy(kept, binary)
    binary.chmod(0o700)
    return binary


def compile_file(main: Path, sources: list[Path], subject: str, directory: Path, *options: str) -> Path:
    """The program of `main` and `sources`; skips, naming the `subject`, where there is no compiler."""
    binary = directory / main.stem
    command = [*_compiler(subject), *options]
    subprocess.run([*command, str(main), *map(str, sources), "-o", str(binary)], check=True)
    return binary


def _compiler(subject: str) -> list[str]:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip(f"no C++ compiler here: {subject} cannot be compiled (set CXX)")
    return [*compiler.split(), "-std=c++17", "-pthread", f"-I{NATIVE}", f"-I{PROGRAMS}"]


def _kept(compiler: list[str], options: tuple[str, ...], sources: list[Path]) -> Path:
    """Where the program lies that this compiler made of the same code, headers included.

    To compile one takes 2 to 12 s, to ask the preprocessor up to 1 s.
    """
    version = subprocess.run([compiler[0], "--version"], check=True, capture_output=True).stdout
    code = subprocess.run([*compiler, *options, "-E", "-P", *map(str, sources)], check=True, capture_output=True).stdout
    name = hashlib.sha256(b"\0".join([version, *map(str.encode, options), code])).hexdigest()
    return cache_home() / "test-programs" / name
