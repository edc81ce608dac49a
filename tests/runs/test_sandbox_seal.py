"""The seal of a plan's process: what it asks of Landlock, told by a C library that only notes what it is asked."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anymps.runs.sandbox import DEVICES, SHARED, _seal

CREATE, ADD, RESTRICT = 444, 445, 446  # landlock_create_ruleset, landlock_add_rule, landlock_restrict_self
NO_NEW_PRIVILEGES = 38
WRITE, REMOVE_FILE, MAKE_REGULAR, REFER, TRUNCATE = 1 << 1, 1 << 5, 1 << 8, 1 << 13, 1 << 14  # linux/landlock.h
ENTRIES = sum(1 << bit for bit in range(4, 13))  # remove and make entries of every kind
RIGHTS = {1: WRITE | ENTRIES, 2: WRITE | ENTRIES | REFER, 3: WRITE | ENTRIES | REFER | TRUNCATE}


class Kernel:
    """In place of the C library, with Landlock in a version; `refuses` is a call that fails."""

    def __init__(self, version: int, refuses: int = 0) -> None:
        self.version = version
        self.refuses = refuses
        self.rules: dict[str, int] = {}
        self.handled = 0
        self.called: list[int] = []

    def syscall(self, number: int, *arguments: Any) -> int:
        self.called.append(number)
        if number == CREATE and arguments[0] is None:
            assert [one.value for one in arguments[1:]] == [0, 1]
            return self.version
        if number == self.refuses:
            return -1
        if number == CREATE:
            (self.handled,) = struct.unpack("Q", arguments[0])
            assert [one.value for one in arguments[1:]] == [8, 0]
            return os.open(os.devnull, os.O_RDONLY)
        if number == ADD:
            _, kind, rule, flags = arguments
            assert (kind, flags.value) == (1, 0)
            rights, place = struct.unpack("=Qi", rule)
            self.rules[os.readlink(f"/proc/self/fd/{place}")] = rights
        return 0

    def prctl(self, option: int, *arguments: int) -> int:
        self.called.append(option)
        assert (option, arguments) == (NO_NEW_PRIVILEGES, (1, 0, 0, 0))
        return 1 if self.refuses == option else 0


@pytest.fixture
def landlock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kernel, Path], bool]:
    """Whether a kernel could be asked to seal a folder; nothing of this process changes."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("reads /proc of Linux")

    def ask(kernel: Kernel, *folders: Path) -> bool:
        monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: kernel)
        return _seal._landlock([str(folder) for folder in folders])

    return ask


@pytest.mark.parametrize("version", [1, 2, 3, 6])
def test_what_is_asked(landlock: Callable[..., bool], tmp_path: Path, version: int) -> None:
    """All rights that the version knows are given up, and given back for the folders; devices may be written to."""
    folder, file = tmp_path.resolve() / "own", tmp_path.resolve() / "file"
    folder.mkdir()
    file.touch()
    kernel = Kernel(version)
    assert landlock(kernel, folder, file)
    rights = RIGHTS[min(version, 3)]
    assert kernel.handled == rights
    assert kernel.called == [CREATE, CREATE, *[ADD] * len(kernel.rules), NO_NEW_PRIVILEGES, RESTRICT]
    of_files = rights & (WRITE | TRUNCATE)
    assert kernel.rules == {
        str(folder): rights,
        str(file): of_files,  # of a file no entries can be made
        **dict.fromkeys(DEVICES, of_files),
        SHARED: rights & (WRITE | REMOVE_FILE | MAKE_REGULAR | TRUNCATE),
    }


@pytest.mark.parametrize("version", [0, -1])
def test_a_system_without_it(landlock: Callable[..., bool], tmp_path: Path, version: int) -> None:
    """Nothing more is asked."""
    kernel = Kernel(version)
    assert not landlock(kernel, tmp_path)
    assert kernel.called == [CREATE]


@pytest.mark.parametrize("refuses", [CREATE, NO_NEW_PRIVILEGES, RESTRICT])
def test_a_system_that_refuses(landlock: Callable[..., bool], tmp_path: Path, refuses: int) -> None:
    """The process is not sealed, whichever call fails; the descriptor of the rules is closed."""
    kernel = Kernel(3, refuses)
    before = set(os.listdir("/proc/self/fd"))
    assert not landlock(kernel, tmp_path)
    assert kernel.called[-1] == refuses
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_sealed_process_ends_quietly() -> None:
    """Objects that die at the end still cause events, after Python has cleared the globals of modules."""
    script = """
import sys
from anymps.runs.sandbox import _seal

class Last:
    def __del__(self):
        compile("1", "last", "eval")

hook = _seal._guard(("/dev",), False)
sys.addaudithook(hook)
sys.addaudithook(lambda *_, held=_seal: None)
_seal.last = Last()
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
