"""Ends all processes that a process has started: those in other sessions and orphans of its children, too."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final

_SET_CHILD_SUBREAPER: Final = 36  # prctl, Linux 3.4


def adopt_descendants() -> None:
    """From now on become the parent of what children leave behind. Only Linux has that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """The process ids of the children of this process; none where the system does not tell."""
    found = set()
    with suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    found.add(int(name))
    return found


def end_children(but: Collection[int] = ()) -> None:
    """Kill the children of this process, but for some, then those that they leave to it, until there are none."""
    past = set(but)
    while found := children() - past:
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        past |= found
