"""The descriptors of a recording's file, which a program may close, and reuse for its own files.

SQLite keeps using their numbers, whatever file has them then (sqlite.org/howtocorrupt.html, "Continuing to use a file
descriptor after it has been closed").
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BESIDE = ("", "-wal", "-shm")


class Descriptors:
    """Those of one recording; none where the system does not tell (Windows), or of one in memory."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, int]] = {}
        self._lost = False

    def find(self, path: Path) -> None:
        """Look for those of the file and of what SQLite has open beside it."""
        keys = set()
        for ending in _BESIDE:
            with suppress(OSError):
                status = os.stat(f"{path}{ending}")
                keys.add((status.st_dev, status.st_ino))
        with suppress(OSError):
            numbers = map(int, os.listdir("/dev/fd"))
            self._found = {number: key for number in numbers if (key := _key(number)) in keys and key is not None}

    @property
    def are_ours(self) -> bool:
        """Whether each still is the file that it was. Once one was not, none is used any more."""
        self._lost = self._lost or any(_key(number) != key for number, key in self._found.items())
        return not self._lost


def _key(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino
