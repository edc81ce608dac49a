"""The recordings that a command reads: those that it names, as one, or that of the last run, which the cache keeps."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._cache import cache_home
from anymps._errors import UsageError

if TYPE_CHECKING:
    from anymps.record import Recording
    from anymps.report import Outputs

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


@contextlib.contextmanager
def opened(files: Sequence[Path], outputs: Outputs, otherwise: str) -> Iterator[Recording]:
    """The recordings that were named, joined in memory if there are several; without any that of the last run.

    Raises UsageError where there was no last run, whose text ends with what to do `otherwise`, for a file that is named
    twice or that a report would replace; RecordingError for one that cannot be read, and for several of different
    releases or Macs.
    """
    from anymps.record import Recording, check_alike, join_into

    if not files:
        files = (last_recording(),)
        if not files[0].exists():
            raise UsageError(f"no previous run was found: {otherwise}")
    places = [file.resolve() for file in files]
    for number, file in enumerate(files):
        outputs.check(file)
        if places[number] in places[:number]:
            raise UsageError(f"{file} is named twice: each recording counts once")
    with contextlib.ExitStack() as stack:
        recordings = [stack.enter_context(Recording.open(file)) for file in files]
        if len(recordings) == 1:
            yield recordings[0]
            return
        short = [file.stem for file in files]
        names = short if len(set(short)) == len(short) else map(str, files)
        parts = list(zip(names, recordings, strict=True))
        check_alike(parts)
        yield stack.enter_context(join_into(parts, None))


def _directory() -> Path:
    return cache_home() / "runs"


def _sweep(directory: Path) -> None:
    """Take away recordings of runs that were killed long ago."""
    for path in directory.glob("run-*.anymps*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()
