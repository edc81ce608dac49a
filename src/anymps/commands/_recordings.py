"""The recording of the last run, kept in the user's cache directory for `anymps report`."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from anymps._cache import cache_home
from anymps._errors import UsageError

_NAME = "last.anymps"
_STALE_S = 24 * 3600  # leftovers of a killed run are deleted after a day


def last_recording() -> Path:
    """Where the recording of the last run lies; it may not exist. Raises UsageError if there is no home directory."""
    return _directory() / _NAME


def place_of_run() -> Path | None:
    """A new file for a run's recording, in a directory of the user's own; None if there is no place to write."""
    try:
        directory = _directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(directory)
        directory.chmod(0o700)  # only its user may read a script's lines and arguments
    except (OSError, UsageError):
        return None
    return directory / f"run-{os.getpid()}.anymps" if os.access(directory, os.W_OK) else None


def keep_as_last(path: Path) -> bool:
    """Make a closed recording the last one; False if that failed."""
    from anymps.record import move_recording

    try:
        move_recording(path, last_recording())
    except (OSError, UsageError):
        return False
    return True


def _directory() -> Path:
    return cache_home() / "runs"


def _sweep(directory: Path) -> None:
    """Take away recordings of runs that were killed long ago."""
    for path in directory.glob("run-*.anymps*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()
