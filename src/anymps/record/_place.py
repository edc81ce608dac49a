"""The place of a recording: its file, what SQLite leaves beside it, and how a new one takes the name over.

SQLite finds a journal by its name alone and takes it for the file's own (sqlite.org/howtocorrupt.html, "Unlinking or
renaming a database file while in use"). So whatever gives a file the name of a recording does it here.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from anymps._atomic import check_not_read_only, check_writable, move_into_place
from anymps._errors import RecordingError
from anymps.record._file import check_is_recording
from anymps.record._snapshot import is_at_rest, own_writer

_BESIDE = ("-wal", "-shm", "-journal")


def check_free(path: Path) -> None:
    """Raise RecordingError unless a new recording may take the name `path`.

    It may where nothing is, in place of an empty file, and in place of a recording that nobody writes. The journal of
    one that was killed is folded into its file, which then stands for itself.
    """
    if path.is_dir():
        raise RecordingError(f"{path} is a directory: give the name of a file to record into")
    if not path.parent.is_dir():
        raise RecordingError(f"{path} cannot be written: there is no directory {path.parent}")
    if not path.exists():
        return
    if not path.is_file():
        raise RecordingError(f"{path} is not a regular file: give the name of a file to record into")
    try:
        check_not_read_only(path)
    except PermissionError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror}") from None
    if path.stat().st_size == 0:
        return  # as `mktemp` makes it: nothing to lose
    if own_writer(path) is not None:
        raise _in_use(path)
    try:
        check_is_recording(path)
    except RecordingError as error:
        what = str(error).removeprefix(f"{path} ").rpartition(": ")[0]  # without what to do to read it
        raise RecordingError(f"{path} {what}, so it will not be overwritten: name another file") from None
    if is_at_rest(path):
        return
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as older:
        try:
            older.execute("BEGIN IMMEDIATE")
            older.execute("COMMIT")
            older.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise _in_use(path) from None
            raise RecordingError(f"{path} cannot be written: {error}") from None


def check_recordable(path: str | os.PathLike[str]) -> None:
    """Raise RecordingError, before long work, for a place that no new recording can take."""
    target = Path(os.path.realpath(path))
    check_free(target)
    try:
        check_writable(target)
    except OSError as error:
        raise RecordingError(f"{target} cannot be written: {error.strerror or error}") from None


def name_of_new(path: Path) -> Path:
    """Where a new recording is made before it takes the name `path`. One name for all: only who holds it may use it."""
    return path.with_name(f".{path.name}.new")


def take_name(fresh: Path, path: Path) -> None:
    """Rename the closed file `fresh` to `path`, and delete an old file there and its journals.

    Raises OSError, and then the file at `path` is as it was.
    """
    for ending in _BESIDE:
        _with_ending(path, ending).unlink(missing_ok=True)
    move_into_place(fresh, path)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Within this no other process takes a name in the folder of `path`, or ends a recording there.

    Best effort: some network file systems have no such lock.
    """
    folder = None
    try:
        with suppress(OSError):
            folder = os.open(path.parent, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        if folder is not None:
            with suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_UN)  # for a child that was forked meanwhile and has it open, too
            os.close(folder)


def move_recording(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> None:
    """Give a recording that nobody writes any more another name in its folder, in place of what has it.

    One that was cut short takes its journal along. Raises OSError.
    """
    source, target = Path(path), Path(to)
    with held(target):
        for ending in _BESIDE:
            _with_ending(target, ending).unlink(missing_ok=True)
        if _with_ending(source, "-wal").exists():
            # Before its file: beside the one that is replaced it is a foreign journal, and that is not read.
            _with_ending(source, "-wal").replace(_with_ending(target, "-wal"))
        source.replace(target)
        for ending in _BESIDE:
            _with_ending(source, ending).unlink(missing_ok=True)


def remove_recording(path: str | os.PathLike[str]) -> None:
    """Take a recording away, with what SQLite has left beside it. Raises OSError."""
    for ending in ("", *_BESIDE):
        _with_ending(Path(path), ending).unlink(missing_ok=True)


def _with_ending(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _in_use(path: Path) -> RecordingError:
    return RecordingError(f"{path} is in use by another process: record into another file")
