"""The cache of compiled files: each appears complete or not at all, and is used only if it is unchanged.

A file's name ends in the digest of its content. Two processes that make the same file at once both make it whole. Where
the cache outgrows its limit, the least recently used go first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from anymps._atomic import move_into_place
from anymps._cache import CACHE_VARIABLE, cache_home, sha256_of, why_unsafe
from anymps._errors import BuildError, UsageError
from anymps.cleanup import PrivateFolder

LIMIT_VARIABLE = "ANYMPS_SHADER_CACHE_MB"
_PARTS = ("kernels", "objects", "shim", "checker", "runtime", "support")  # all that is made again when it is missed
_IN_USE = 3600  # seconds; another process may have found it and not have loaded it yet


def cache_directory(*parts: str) -> Path:
    """A folder of the cache for shaders, made if need be.

    Raises BuildError if there is no place for it, or if other users may write there: code is loaded from it.
    """
    try:
        home = cache_home()
    except UsageError as error:
        raise BuildError(str(error)) from None
    directory = home.joinpath("metal", *parts)
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        reason = why_unsafe(directory) or why_unsafe(home / "metal")
    except OSError as error:
        raise _unusable("compiled shaders cannot be kept", directory, error, "make it writable") from None
    if reason:
        raise BuildError(
            f"{reason}, and compiled shaders are loaded from there: remove that permission (chmod go-w), "
            f"or name another place in {CACHE_VARIABLE}"
        )
    return directory


def _unusable(what: str, directory: Path, error: OSError, mend: str) -> BuildError:
    reason = error.strerror or error
    return BuildError(f"{what} in {directory} ({reason}): {mend}, or name another place in {CACHE_VARIABLE}")


@contextlib.contextmanager
def work_folder(directory: Path) -> Iterator[Path]:
    """A folder beside the finished files that is gone afterwards.

    Raises BuildError where the disk is full or cannot be written.
    """
    try:
        with PrivateFolder("making-", directory) as folder:
            yield folder
    except OSError as error:
        raise _unusable("a shader cannot be compiled", directory, error, "make room there") from None


def find(directory: Path, key: str, suffix: str) -> Path | None:
    """The finished file of that key, whole by its digest; what is not whole is removed."""
    for path in directory.glob(f"{key}-*{suffix}"):
        _mark_used(path)  # before it is read: no other process removes it now
        with contextlib.suppress(OSError):  # already gone, or owned by another user
            if path.name == f"{key}-{sha256_of(path)[:16]}{suffix}" and not why_unsafe(path):
                return path
            path.unlink()
    return None


def keep(made: Path, directory: Path, key: str, suffix: str) -> Path:
    """Moves a finished file into the cache, which then is brought within its limit, and returns its new place.

    Raises BuildError where it cannot be written, UsageError for a limit that is no number.
    """
    try:
        made.chmod(0o755)
        target = directory / f"{key}-{sha256_of(made)[:16]}{suffix}"
        move_into_place(made, target)
    except OSError as error:
        raise _unusable("compiled shaders cannot be kept", directory, error, "make room there") from None
    with contextlib.suppress(OSError):  # other processes make and remove files there at the same time
        prune()
    return target


def find_or_make(directory: Path, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of that key; if there is none, `make(path)` writes it."""
    found = find(directory, key, suffix)
    if found is not None:
        return found
    with work_folder(directory) as folder:
        path = folder / f"made{suffix}"
        make(path)
        return keep(path, directory, key, suffix)


def cache_limit() -> int:
    """The size in bytes that the cache may have. Raises UsageError for what is no such number."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip() or "1024"
    if not text.isdecimal():
        raise UsageError(f"{LIMIT_VARIABLE}={text} is not a number of megabytes: name one, such as 1024")
    return int(text) << 20


def _mark_used(path: Path) -> None:
    """Notes that a file of the cache is used now; the time of its making stays."""
    with contextlib.suppress(OSError):  # already gone, or owned by another user
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
        if _measure(path)[1] != used:  # another process has used it meanwhile
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
