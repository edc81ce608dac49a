"""Connects to the file of a recording for reading: writes nothing beside it, takes no lock, and does not wait.

A closed recording does not change any more. If its run was killed or still goes on, it has a journal. SQLite reads that
only with a lock file beside it, and does not check that it is of the same run. So the file is copied first, with its
journal if that carries the same number (`identity`).
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from anymps._errors import RecordingError
from anymps.cleanup import PrivateFolder

# sqlite.org/fileformat2.html, "The Database Header" and "The Write-Ahead Log".
_HEADER: Final = 100
_READ_VERSION: Final = 19  # 2: what is newest is in a journal
_WITH_JOURNAL: Final = 2
_LOG_MAGIC: Final = b"\x37\x7f\x06"  # and a byte that tells in which order its sums are
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_PAGE_SIZE: Final = slice(8, 12)
_SALTS: Final = slice(16, 24)  # of the log: another pair each time that it begins anew
_FRAME_SALTS: Final = slice(8, 16)

_ATTEMPTS: Final = 100
"""Copies that may be out of date when they are done: a log begins anew every 64 MiB."""


class Writing(Protocol):
    """What writes a recording in this process."""

    def snapshot(self) -> sqlite3.Connection:
        """What has been written so far, as a database in memory."""


_writers: weakref.WeakValueDictionary[tuple[int, int], Writing] = weakref.WeakValueDictionary()


def connect_memory() -> sqlite3.Connection:
    """A new database in memory, in autocommit mode."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close a connection that nobody gets, as what is done with it first has failed."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the recording at `path` as it is now; nothing changes through it, nor under it.

    Raises OSError, sqlite3.Error, and RecordingError where no copy can be made.
    """
    writer = own_writer(path)
    if writer is not None:
        return writer.snapshot()
    for _ in range(_ATTEMPTS):
        with path.open("rb") as file:
            header = file.read(_HEADER)
        if _rests(header):
            return _connect_unlocked(path)
        with _copied(path) as copy:
            if copy is not None:
                with closing(_connect_copy(copy)) as source, closed_on_error(connect_memory()) as memory:
                    source.backup(memory)
                return memory
    raise RecordingError(f"{path} cannot be read: it is written faster than it can be copied; read it after the run")


def is_at_rest(path: Path) -> bool:
    """Whether a database needs no journal. A journal beside it is then of another one."""
    with path.open("rb") as file:
        return _rests(file.read(_HEADER))


def new_identity() -> int:
    """A number to tell a recording's journal by: the `user_version` of the file, and of every change to it."""
    return secrets.randbelow((1 << 31) - 1) + 1


def register(path: Path, writer: Writing) -> None:
    """Have this process read the file at `path` through its writer from now on.

    Opening and closing it again would drop the locks that SQLite holds on it (sqlite.org/howtocorrupt.html, "POSIX
    advisory locks canceled by a separate thread doing close()").
    """
    _writers[_key(path)] = writer


def unregister(writer: Writing) -> None:
    """Have the file read directly again: it does not change any more."""
    for key in [key for key, other in _writers.items() if other is writer]:
        del _writers[key]


def own_writer(path: Path) -> Writing | None:
    """Who writes the file at `path` in this process."""
    try:
        return _writers.get(_key(path))
    except (OSError, ValueError):
        return None


def _key(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _rests(header: bytes) -> bool:
    return len(header) <= _READ_VERSION or header[_READ_VERSION] != _WITH_JOURNAL


def _connect_unlocked(path: Path) -> sqlite3.Connection:
    """Connect to a file that does not change. `immutable`: no lock is taken, and no journal is looked for."""
    return _connect_by(path, "&immutable=1")


def _connect_by(path: Path, how: str = "") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro{how}", uri=True, isolation_level=None, check_same_thread=False
    )
    with closed_on_error(connection):
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    return connection


def _connect_copy(copy: Path) -> sqlite3.Connection:
    """Connect to a copy, with the log beside it if that is its own."""
    log = _log_of(copy)
    if not log.exists():
        return _connect_unlocked(copy)
    with copy.open("rb") as file:
        identity = int.from_bytes(file.read(_HEADER)[60:64], "big")
    with closed_on_error(_connect_by(copy)) as connection:
        (of_log,) = connection.execute("PRAGMA user_version").fetchone()
    if of_log == identity:
        return connection
    connection.close()
    log.unlink()
    return _connect_unlocked(copy)


@contextmanager
def _copied(path: Path) -> Iterator[Path | None]:
    """A private copy of a file and its log as they were at one moment; None if they have changed meanwhile.

    The file first: what a checkpoint moves into it from the log while it is copied is in the log still, as long as that
    does not begin anew.
    """
    try:
        folder = PrivateFolder("anymps-copy-")
    except OSError as error:
        raise _no_copy(path, error) from None
    copy = folder.path / "recording"
    try:
        before = _state(path)
        try:
            with path.open("rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            if before[1]:
                with _log_of(path).open("rb") as source, _log_of(copy).open("wb") as target:
                    _copy_log(source, target)
        except OSError as error:
            if _state(path) == before:
                raise _no_copy(path, error) from None
        yield copy if _state(path) == before else None
    finally:
        folder.remove()


def _no_copy(path: Path, error: OSError) -> RecordingError:
    return RecordingError(
        f"{path} cannot be read: its run did not end, so it is read from a copy, and none can be made "
        f"({error.strerror}): set TMPDIR to a folder with room for it"
    )


def _state(path: Path) -> tuple[tuple[int, int] | None, bytes]:
    """Which file it is, and which round of its log; empty if there is none."""
    log = _log_of(path)
    try:
        key = _key(path)
        if not log.is_file():  # opening a pipe would wait
            return key, b""
        with log.open("rb") as file:
            return key, file.read(_LOG_HEADER)
    except OSError:
        return None, b""


def _copy_log(source: BinaryIO, target: BinaryIO) -> None:
    """Copy the log as far as its frames are of this round: what follows is what was there before, or anything."""
    header = source.read(_LOG_HEADER)
    target.write(header)
    page = int.from_bytes(header[_PAGE_SIZE], "big")
    if header[: len(_LOG_MAGIC)] != _LOG_MAGIC or page > 1 << 16:
        return
    while frame := source.read(_FRAME_HEADER + page):
        if frame[_FRAME_SALTS] != header[_SALTS] or not any(frame[:4]):  # no page has the number 0
            return
        target.write(frame)


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


os.register_at_fork(after_in_child=_writers.clear)  # they belong to the parent, and so do its locks
