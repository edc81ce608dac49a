"""The seal of a plan: code that was not redirected cannot write either, in libraries or in other programs.

Since Linux 5.13 the seal uses Landlock, by which a process gives up rights for itself and for all that it starts
(https://docs.kernel.org/userspace-api/landlock.html), and a supervisor for system calls that Landlock does not cover.
Without one of them, Python's audit hook refuses what it sees, and no program is started.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from anymps.runs.sandbox._supervisor import SHARED, ask_supervisor

DEVICES: Final = ("/dev", "/proc")
"""Folders of what is no file on a disk: what is there may be written to; nothing is made or removed."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on all architectures
_NO_NEW_PRIVILEGES: Final = 38  # prctl

# Rights to write: write a file, and remove and make entries of every kind; later versions add renaming between
# directories and truncating (linux/landlock.h).
_OF_VERSION: Final = {1: 1 << 1 | 0x1FF << 4, 2: 1 << 13, 3: 1 << 14}
_OF_FILES: Final = 1 << 1 | 1 << 14
_OF_SHARED: Final = 1 << 1 | 1 << 5 | 1 << 8 | 1 << 14  # write, remove and make regular files, truncate

_STARTS: Final = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"))
_CHANGES: Final = frozenset(
    (
        *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
        *("os.chown", "os.chflags", "os.utime", "os.setxattr", "os.removexattr"),
    )
)
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def seal(folders: Sequence[str]) -> None:
    """Let this process and all that it starts write below `folders` alone, and to devices. It cannot be undone.

    Shared memory that is new may be made; the supervisor removes it. A process without a supervisor starts no other.
    """
    places = tuple(os.path.realpath(folder) for folder in folders)
    closed = sys.platform == "linux" and _landlock(folders) and ask_supervisor(places)
    sys.addaudithook(_guard((*places, *DEVICES), closed))


def _landlock(folders: Sequence[str]) -> bool:
    """Whether the system could be asked."""
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return False
    rights = sum(bits for first, bits in _OF_VERSION.items() if first <= version)
    attributes = struct.pack("Q", rights)
    rules = library.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if rules < 0:
        return False
    try:
        wanted = {**dict.fromkeys(folders, rights), **dict.fromkeys(DEVICES, _OF_FILES), SHARED: _OF_SHARED}
        for folder, held in wanted.items():
            with suppress(OSError):
                place = os.open(folder, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
                try:
                    held &= rights if stat.S_ISDIR(os.fstat(place).st_mode) else rights & _OF_FILES
                    library.syscall(_ADD, rules, 1, struct.pack("=Qi", held, place), ctypes.c_uint32(0))
                finally:
                    os.close(place)
        if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return False
        return bool(library.syscall(_RESTRICT, rules, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(rules)


def _guard(folders: tuple[str, ...], closed: bool) -> Callable[[str, tuple[Any, ...]], None]:
    allowed = tuple(f"{folder}/" for folder in folders)
    # Python clears the globals of modules before its last event, which the hook hears too.
    changes, starts, writing = _CHANGES, _STARTS, _WRITING

    def refuse(path: Any) -> None:
        with suppress(TypeError, ValueError):
            if f"{os.path.realpath(os.fsdecode(path))}/".startswith(allowed):
                return
            raise PermissionError(errno.EACCES, "a plan cannot redirect this write, so it is refused", path)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            writes = isinstance(flags, int) and flags & writing
            # With an opener the path may be the directory in which it makes its file.
            if writes and path and not isinstance(path, int) and not os.path.isdir(path):
                refuse(path)
        elif event in changes:
            if not isinstance(args[0], int):
                refuse(args[1] if event in ("os.link", "os.symlink") else args[0])
        elif event in starts and not closed:
            raise PermissionError(errno.EACCES, "a plan starts no program that the system cannot keep from writing")

    return hook
