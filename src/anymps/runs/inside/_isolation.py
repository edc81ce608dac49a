"""Isolates a script in its process: it writes none of the user's files, and ends with the process that ordered it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from anymps._cache import CACHE_VARIABLE
from anymps.cleanup import adopt_descendants, end_children
from anymps.runs._process import FILES, LIFELINE

if TYPE_CHECKING:
    from anymps.runs.sandbox import Layer


DIVERT_AGAIN = f"{__name__}:divert_again"
"""How `divert_again` is named to the processes that a script starts."""


def divert_writes(private: str) -> Layer:
    """Send what this process writes to a private folder. First of all: torch is not there yet."""
    sys.dont_write_bytecode = True
    files, temporary = os.path.join(private, FILES), os.path.join(private, "tmp")
    os.mkdir(files)
    os.mkdir(temporary)
    os.environ.update(TMPDIR=temporary, PYTHONDONTWRITEBYTECODE="1")
    tempfile.tempdir = None
    return _divert(private)


def divert_again(private: str) -> None:
    """In a process that such a process has started anew: what it writes goes to the same folder, and is read there.

    The system keeps it from writing elsewhere in any case; without this, a worker that makes a folder would fail.
    """
    _divert(private).touched = True


def _divert(private: str) -> Layer:
    from anymps.runs.sandbox import DEVICES, SHARED, Layer, divert_files, divert_libraries, seal

    free = [private, os.environ.get(CACHE_VARIABLE, private)]  # whoever gave the order names it
    layer = Layer(os.path.join(private, FILES), (*free, *DEVICES), within=(SHARED,))
    divert_files(layer)
    divert_libraries(layer)
    seal(free)
    return layer


def end_with_parent() -> None:
    """End this process and all that it starts when the process that started it is gone, however that ended.

    It is also told to stop by an interrupt, which a shell's background jobs, and all that they start, ignore.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    adopt_descendants()
    pipe = os.environ.pop(LIFELINE, None)
    if pipe is None:
        return
    leader = os.getpid()

    def watch() -> None:
        with suppress(OSError):
            os.read(int(pipe), 1)
        end_children()
        os.killpg(leader, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="anymps run").start()
