"""The user's cache directory: where anymps keeps its files, whether others may write there, and a file's digest."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from pathlib import Path

from anymps._errors import UsageError
from anymps._paths import whole_path

CACHE_VARIABLE = "ANYMPS_CACHE_DIR"


def cache_home() -> Path:
    """The directory that ``ANYMPS_CACHE_DIR`` names, else the user's cache directory. It may not exist yet.

    Raises UsageError, in one line, if neither can be told.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        try:
            return whole_path(Path(chosen).expanduser())
        except RuntimeError:
            raise UsageError(f"{CACHE_VARIABLE}={chosen} is not a directory: there is no such home directory") from None
    import platformdirs  # not at the top: a process may need this module before Python has found other packages

    path = Path(platformdirs.user_cache_dir("anymps", appauthor=False))
    # Relative where HOME is relative or missing. Code must never be loaded from the current directory.
    if not path.is_absolute():
        raise UsageError(f"there is no home directory for the cache: set {CACHE_VARIABLE}")
    return path


def why_unsafe(path: Path) -> str:
    """Why code that lies in `path` must not be run: another user owns it or may write to it. Empty if it may be.

    A group that is named like its user is private to that user and may write.
    Raises OSError if `path` is not there.
    """
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user"
    if status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid)
    ):
        return f"{path} can be written by other users"
    return ""


def sha256_of(path: Path) -> str:
    """The digest of a file, in hexadecimal. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _is_private(group: int, user: int) -> bool:
    """Whether a group is the one that some systems make for each user alone."""
    try:
        return grp.getgrgid(group).gr_name == pwd.getpwuid(user).pw_name
    except KeyError:
        return False
