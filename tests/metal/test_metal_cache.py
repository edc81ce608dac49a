"""The cache of compiled shaders: what is found in it, what is compiled again, what it says where it cannot write."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from metal.forms import error_of
from own_cache import new_cache
from processes import PATIENCE

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
    value()  # makes what the session's cache lacks
    cache = new_cache(tmp_path / "cache")
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(cache))
    return cache


def test_a_shader_is_compiled_once(small_cache: Path) -> None:
    """The second time the file is found; nothing else lies there."""
    assert value() == 7
    (made,) = kernels(small_cache)
    before = made.stat().st_mtime_ns
    assert value() == 7
    assert kernels(small_cache) == [made]
    assert made.stat().st_mtime_ns == before


def test_a_file_that_is_not_whole_is_compiled_again(small_cache: Path) -> None:
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
    from anymps.metal.compilation import _compile, _compiler

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
    assert error_of(value) == (
        f"compiled shaders cannot be kept in {tmp_path}/file/metal/kernels (Not a directory): make it writable, "
        "or name another place in ANYMPS_CACHE_DIR"
    )


def test_a_full_disk(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left that a later process could take for a shader."""
    from anymps.metal.compilation import _cache

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_cache, "move_into_place", full)
    assert error_of(value) == (
        f"compiled shaders cannot be kept in {small_cache}/metal/kernels (No space left on device): make room there, "
        "or name another place in ANYMPS_CACHE_DIR"
    )
    assert kernels(small_cache) == []


def files_by_age(cache: Path, *ages: int) -> list[Path]:
    """Files of a MB in the cache, each used that many seconds ago."""
    (cache / "metal" / "kernels").mkdir(parents=True, exist_ok=True)
    made = []
    for age in ages:
        path = cache / "metal" / "kernels" / f"used-{age}.so"
        path.write_bytes(bytes(1 << 20))
        os.utime(path, (time.time() - age, 0))
        made.append(path)
    return made


def test_the_cache_has_a_limit(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new shader makes the longest unused go; a header's folder too, but nothing of the last hour, nothing linked."""
    monkeypatch.setenv("ANYMPS_SHADER_CACHE_MB", "3")
    old, middle, recent, now = files_by_age(small_cache, 90_000, 80_000, 70_000, 60)
    (small_cache / "metal" / "objects" / "folder").mkdir(parents=True)
    folder = small_cache / "metal" / "objects" / "folder"
    (folder / "part").write_bytes(bytes(1 << 20))
    for path in (folder / "part", folder):
        os.utime(path, (time.time() - 100_000, 0))
    assert value() == 7
    assert [path.exists() for path in (folder, old, middle, recent, now)] == [False, False, False, True, True]
    (made,) = set(kernels(small_cache)) - {recent, now}
    assert value() == 7
    assert made.exists()
    assert (small_cache / "metal" / "shim").is_dir()


def test_what_is_used_stays(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shader that was made long ago and is used now is not the oldest."""
    from anymps.metal.compilation._cache import prune

    value()
    (made,) = kernels(small_cache)
    os.utime(made, (0, 0))
    value()
    (old,) = files_by_age(small_cache, 90_000)
    monkeypatch.setenv("ANYMPS_SHADER_CACHE_MB", "0")
    prune()
    assert kernels(small_cache) == [made]
    assert not old.exists()


def test_another_process_may_take_its_folder_away(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is gone while the cache is measured is no reason to lose a shader."""
    scandir = os.scandir

    def gone(path: str | Path | int = ".") -> object:
        if not isinstance(path, int) and Path(path).name == "making-elsewhere":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scandir(path)

    (small_cache / "metal" / "kernels" / "making-elsewhere").mkdir(parents=True)
    monkeypatch.setattr(os, "scandir", gone)
    assert value() == 7


def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to name."""
    from anymps._errors import UsageError
    from anymps.metal.compilation._cache import cache_limit

    monkeypatch.setenv("ANYMPS_SHADER_CACHE_MB", "1 GB")
    with pytest.raises(UsageError) as raised:
        cache_limit()
    assert str(raised.value) == "ANYMPS_SHADER_CACHE_MB=1 GB is not a number of megabytes: name one, such as 1024"


def test_two_processes_at_once(small_cache: Path) -> None:
    """Both run, and one file is left."""
    home = os.environ | {"ANYMPS_CACHE_DIR": str(small_cache)}
    pair = [
        subprocess.Popen([sys.executable, "-c", CODE], env=home, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate(timeout=PATIENCE)[0] for process in pair] == ["7\n", "7\n"]
    assert len(kernels(small_cache)) == 1


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line that says what to install."""
    from anymps.metal.compilation import _compiler

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert error_of(_compiler.find_compiler.__wrapped__) == (
        "Metal shaders are compiled with a C++ compiler, and none was found: install clang 15 or g++ 12, or a newer "
        "one (apt install g++), or name one in CXX"
    )


def test_a_compiler_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is passed over for a newer one; if there is none, the line names it. Clang 14 has no halves on x86."""
    from anymps.metal.compilation import _compiler

    old = tmp_path / "clang++"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "clang version 14.0.6"\nexit 0\n', encoding="utf-8")
    old.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert _compiler.find_compiler.__wrapped__().command != ("clang++",)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert error_of(_compiler.find_compiler.__wrapped__) == (
        "Metal shaders are compiled with a C++ compiler, and clang version 14.0.6 has no 16-bit floats: "
        "install clang 15 or g++ 12, or a newer one (apt install g++), or name one in CXX"
    )
