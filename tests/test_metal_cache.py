"""The cache of compiled shaders: what is found again, what is made anew, and what it says where it cannot write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.usefixtures("virtual_device")
SOURCE = "kernel void f(device int* x) { x[0] = 7; }"
CODE = (
    "import anymps, torch\nanymps.enable(quiet=True)\n"
    f"x = torch.zeros(1, dtype=torch.int32, device='mps')\ntorch.mps.compile_shader({SOURCE!r}).f(x)\nprint(x.item())\n"
)


def value() -> int:
    """What the kernel writes."""
    x = torch.zeros(1, dtype=torch.int32, device="mps")
    torch.mps.compile_shader(SOURCE).f(x)
    return int(x.item())


def kernels(cache: Path) -> list[Path]:
    """The compiled shaders of a cache."""
    return sorted((cache / "metal" / "kernels").iterdir())


@pytest.fixture
def small_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the runtime and the headers of the session's, and no shader."""
    from anymps._cache import cache_home

    value()  # makes what the session's cache lacks
    (tmp_path / "metal").mkdir()
    for part in ("runtime", "shim", "headers"):
        source = cache_home() / "metal" / part
        if source.is_dir():
            (tmp_path / "metal" / part).symlink_to(source)
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_shader_is_compiled_once(small_cache: Path) -> None:
    """The second time the file is found; nothing else lies there."""
    assert value() == 7
    (made,) = kernels(small_cache)
    before = made.stat().st_mtime_ns
    assert value() == 7
    assert kernels(small_cache) == [made]
    assert made.stat().st_mtime_ns == before


def test_a_file_that_is_not_whole_is_made_anew(small_cache: Path) -> None:
    """Cut short as a full disk or a crash leaves it."""
    value()
    (made,) = kernels(small_cache)
    whole = made.read_bytes()
    made.unlink()  # not in place: it is loaded
    made.write_bytes(whole[:100])
    assert value() == 7
    assert [path.stat().st_size for path in kernels(small_cache)] == [len(whole)]


def test_another_compiler_has_files_of_its_own(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it made is not taken for this one's."""
    from anymps.metal import _compile, _compiler

    value()
    real = _compiler.find_compiler()
    other = _compiler.Compiler(real.command, real.is_clang, real.identity + " of tomorrow")
    monkeypatch.setattr(_compile, "find_compiler", lambda: other)
    (small_cache / "metal" / "shim").unlink()
    assert value() == 7
    assert len(kernels(small_cache)) == 2


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to do."""
    value()
    (tmp_path / "file").touch()
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(RuntimeError) as raised:
        value()
    assert str(raised.value) == (
        f"compiled shaders cannot be kept in {tmp_path}/file/metal/kernels (Not a directory): make it writable, "
        "or name another place in ANYMPS_CACHE_DIR"
    )


def test_a_full_disk(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left that a later process could take for a shader."""
    from anymps.metal import _cache

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_cache.os, "replace", full)
    with pytest.raises(RuntimeError) as raised:
        value()
    assert str(raised.value) == (
        f"compiled shaders cannot be kept in {small_cache}/metal/kernels (No space left on device): make room there, "
        "or name another place in ANYMPS_CACHE_DIR"
    )
    assert kernels(small_cache) == []


def test_two_processes_at_once(small_cache: Path) -> None:
    """Both run, and one file is left."""
    home = os.environ | {"ANYMPS_CACHE_DIR": str(small_cache)}
    native = Path(sys.modules["anymps._native"].__file__ or "").parents[1]
    (small_cache / "native").symlink_to(native)
    pair = [
        subprocess.Popen([sys.executable, "-c", CODE], env=home, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[0] for process in pair] == ["7\n", "7\n"]
    assert len(kernels(small_cache)) == 1


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line that says what to install."""
    from anymps.metal import _compiler

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RuntimeError) as raised:
        _compiler.find_compiler.__wrapped__()
    assert str(raised.value) == (
        "Metal shaders are compiled with a C++ compiler, and none was found: install clang 15 or g++ 12, or a newer "
        "one (apt install g++), or name one in CXX"
    )


def test_a_compiler_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is passed over for a newer one; if there is none, the line names it. Clang 14 has no halves on x86."""
    from anymps.metal import _compiler

    old = tmp_path / "clang++"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "clang version 14.0.6"\nexit 0\n', encoding="utf-8")
    old.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert _compiler.find_compiler.__wrapped__().command != ("clang++",)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError) as raised:
        _compiler.find_compiler.__wrapped__()
    assert str(raised.value) == (
        "Metal shaders are compiled with a C++ compiler, and clang version 14.0.6 has no 16-bit floats: "
        "install clang 15 or g++ 12, or a newer one (apt install g++), or name one in CXX"
    )
