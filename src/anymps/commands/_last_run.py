"""The recording of the last run, kept in the user's cache directory for `anymps report`."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from anymps._cache import cache_home
from anymps._errors import UsageError

_NAME = "last.anymps"
_STALE_S = 24 * 3600  # what a killed run left behind is taken away after a day


def last_recording() -> Path:
    """Where the recording of the last run lies; it may not exist. Raises UsageError if there is no home directory."""
    return _directory() / _NAME


class LastRun:
    """The place of one run's recording: a file of its own while the script runs, `last_recording()` afterwards."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def open(self) -> Path | None:
        """A new file's path, in a directory of the user's own; None if there is no place to write."""
        try:
            directory = _directory()
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(directory)
            directory.chmod(0o700)  # what a script's lines and arguments say is for its user alone
        except (OSError, UsageError):
            return None
        if not os.access(directory, os.W_OK):
            return None
        self._path = directory / f"run-{os.getpid()}.anymps"
        return self._path

    def keep(self) -> bool:
        """Make the closed recording the last one; False if that failed."""
        path, self._path = self._path, None
        if path is None:
            return False
        from anymps.record import move_recording

        try:
            move_recording(path, last_recording())
        except OSError:
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
