"""Limits the size of the cache of compiled shaders: the least recently used go first."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from anymps._cache import cache_home
from anymps._errors import UsageError

LIMIT_VARIABLE = "ANYMPS_SHADER_CACHE_MB"
_PARTS = ("kernels", "objects", "shim", "checker", "runtime", "support")  # all that is made again when it is missed
_IN_USE = 3600  # seconds; another process may have found it and not have loaded it yet


def cache_limit() -> int:
    """The size in bytes that the cache may have. Raises UsageError for what is no such number."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip() or "1024"
    if not text.isdecimal():
        raise UsageError(f"{LIMIT_VARIABLE}={text} is not a number of megabytes: name one, such as 1024")
    return int(text) << 20


def mark_used(path: Path) -> None:
    """Notes that a file of the cache is used now; the time of its making stays."""
    with contextlib.suppress(OSError):  # gone, or not ours to touch
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def prune() -> None:
    """Removes what was not used for the longest time until the cache is within its limit.

    What was used within the last hour stays, and what a link leads to. A library that a process has loaded may go: the
    process keeps it. Raises UsageError for a limit that is no number.
    """
    limit, home = cache_limit(), cache_home() / "metal"
    entries = []
    for part in _PARTS:
        folder = home / part
        if folder.is_dir() and not folder.is_symlink():
            entries += [(*_measure(path), path) for path in folder.iterdir()]
    total = sum(size for size, _, _ in entries)
    for size, used, path in sorted(entries, key=lambda entry: entry[1]):
        if total <= limit or time.time() - used < _IN_USE:
            return
        if _measure(path)[1] != used:  # somebody has found it meanwhile
            continue
        _remove(path)
        total -= size


def _measure(path: Path) -> tuple[int, float]:
    """Bytes of a file or of all files in a folder, and when one of them was used last."""
    size, used = 0, 0.0
    inside = [
        Path(folder, name) for folder, _, names in os.walk(path) for name in names
    ]  # none of a folder that is gone
    for file in [path, *inside]:
        with contextlib.suppress(OSError):  # gone meanwhile, as `os.walk` passes over folders that are
            status = file.stat()
            if file.is_file():
                size += status.st_size
                used = max(used, status.st_atime)
            used = max(used, status.st_mtime)
    return size, used


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()
