"""Temporary files and folders of a process; if it was killed, the next process that starts removes them.

A lock shows whether the process still runs: the system releases it however the process ends. Without such locks, as on
some network file systems, nothing is removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_HELD = ".held"  # ends the names of folders that are locked: releases before this one did not lock theirs


def hold(path: str | os.PathLike[str]) -> ExitStack:
    """Say, until this is closed, that a file or folder is no leftover, where that can be said.

    Raises FileNotFoundError if another process has just taken it for one.
    """
    with ExitStack() as held:
        with suppress(PermissionError):
            descriptor = os.open(path, _FLAGS)
            held.callback(os.close, descriptor)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.stat(path)
        return held.pop_all()


def remove_leftovers(folder: str | os.PathLike[str], names: re.Pattern[str]) -> None:
    """Remove what has such a name in a folder, as `remove_leftover` does. Never raises OSError."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if names.fullmatch(entry.name):
                remove_leftover(entry.path)


def remove_leftover(path: str | os.PathLike[str], marked: Path | None = None) -> None:
    """Remove a file or folder, or the folder that it marks, if it is this user's and no process holds it.

    Never raises OSError.
    """
    with suppress(OSError):
        descriptor = os.open(path, _FLAGS)
        try:
            state = os.fstat(descriptor)
            if state.st_uid != os.geteuid():
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if marked is not None or stat.S_ISDIR(state.st_mode):
                shutil.rmtree(marked or path, ignore_errors=True)
            elif stat.S_ISREG(state.st_mode):
                os.unlink(path)
        finally:
            os.close(descriptor)


class PrivateFolder:
    """A new private folder, which `remove` deletes; a `with` block gets its path, and deletes it at the end.

    It lies in `parent`, or else where the system keeps temporary files, and its name begins with `prefix`. Raises
    OSError.
    """

    def __init__(self, prefix: str, parent: str | os.PathLike[str] | None = None) -> None:
        place = tempfile.gettempdir() if parent is None else parent
        remove_leftovers(place, re.compile(rf"{re.escape(prefix)}[a-z0-9_]{{8}}{re.escape(_HELD)}"))
        while True:
            self._whole = Path(tempfile.mkdtemp(_HELD, prefix, place))
            with suppress(FileNotFoundError):
                self._held = hold(self._whole)
                break
        self.path = self._whole / "files"  # who writes a recording locks its folder
        self.path.mkdir()

    def remove(self) -> None:
        """Take it away with all that is in it, as far as possible. Never raises OSError."""
        shutil.rmtree(self._whole, ignore_errors=True)
        self._held.close()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()
