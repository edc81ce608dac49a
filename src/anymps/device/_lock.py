"""A lock between processes: an open file that the operating system unlocks however its holder ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def interprocess_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on the file ``path`` (made if need be); call ``on_wait`` once if another process has it.

    The file stays: to remove it would let a third process lock a new file while the second holds the old one.
    Raises OSError if the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        if not _try_lock(descriptor):
            on_wait()
            _wait_lock(descriptor)
        yield
    finally:
        os.close(descriptor)  # unlocks


if sys.platform == "win32":  # not tested
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _wait_lock(descriptor: int) -> None:
        # LK_LOCK gives up after ten seconds; a build takes longer.
        while not _try_lock(descriptor):
            time.sleep(0.1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
