"""The cache of compiled files: each appears complete or not at all, and is used only if it is unchanged.

A file's name ends in the digest of its content. Two processes that make the same file at once both make it whole.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from anymps._atomic import move_into_place
from anymps._cache import CACHE_VARIABLE, cache_home, why_unsafe
from anymps._errors import BuildError, UsageError
from anymps.cleanup import PrivateFolder
from anymps.metal.compilation._cache_limit import mark_used, prune


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
        raise BuildError(
            f"compiled shaders cannot be kept in {directory} ({error.strerror or error}): make it writable, "
            f"or name another place in {CACHE_VARIABLE}"
        ) from None
    if reason:
        raise BuildError(
            f"{reason}, and compiled shaders are loaded from there: remove that permission (chmod go-w), "
            f"or name another place in {CACHE_VARIABLE}"
        )
    return directory


@contextlib.contextmanager
def work_folder(directory: Path) -> Iterator[Path]:
    """A folder beside the finished files that is gone afterwards.

    Raises BuildError where the disk is full or cannot be written.
    """
    try:
        with PrivateFolder("making-", directory) as folder:
            yield folder
    except OSError as error:
        raise BuildError(
            f"a shader cannot be compiled in {directory} ({error.strerror or error}): make room there, "
            f"or name another place in {CACHE_VARIABLE}"
        ) from None


def find(directory: Path, key: str, suffix: str) -> Path | None:
    """The finished file of that key, whole by its digest; what is not whole is removed."""
    for path in directory.glob(f"{key}-*{suffix}"):
        mark_used(path)  # before it is read: no other process removes it now
        with contextlib.suppress(OSError):  # gone, or not ours to remove
            if path.name == f"{key}-{_digest(path)}{suffix}" and not why_unsafe(path):
                return path
            path.unlink()
    return None


def keep(made: Path, directory: Path, key: str, suffix: str) -> Path:
    """Moves a finished file into the cache, which then is brought within its limit, and returns its new place.

    Raises BuildError where it cannot be written, UsageError for a limit that is no number.
    """
    try:
        made.chmod(0o755)
        target = directory / f"{key}-{_digest(made)}{suffix}"
        move_into_place(made, target)
    except OSError as error:
        raise BuildError(
            f"compiled shaders cannot be kept in {directory} ({error.strerror or error}): make room there, "
            f"or name another place in {CACHE_VARIABLE}"
        ) from None
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


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]
