"""The file of a recording, opened and held: everything that can be wrong with it is one RecordingError of one line."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from anymps._errors import RecordingError
from anymps.record._meta import Meta
from anymps.record._rounds import settle_steps
from anymps.record._snapshot import closed_on_error, connect, connect_memory, own_writer
from anymps.record._strict import DAMAGE, DamageError, check_rows, check_schema, check_table, harden, read_meta
from anymps.record.format import APPLICATION_ID, SCHEMA_VERSION, expand_spool

_LONGEST_REASON = 200
_SQLITE_HEADER = b"SQLite format 3\x00"


def check_is_recording(path: Path) -> None:
    """Raise RecordingError unless `path` is a recording that can be read. Reads only."""
    open_readonly(path).close()


def open_readonly(path: Path) -> sqlite3.Connection:
    """Open a recording so that nothing can change it, whether it was closed, killed or is still being written.

    Raises RecordingError if the file is missing, is no recording, has another schema version or is damaged.
    """
    if "\0" in str(path):
        raise RecordingError(f"{str(path)!r} is not a file name")
    try:
        if path.is_dir():
            raise RecordingError(f"{path} is a directory, not a recording: give the file inside it")
        if path.exists() and not path.is_file():  # opening a pipe would wait
            raise RecordingError(f"{path} is not a regular file: give the file of a recording")
        header = _SQLITE_HEADER
        if own_writer(path) is None:
            with path.open("rb") as file:
                header = file.read(len(_SQLITE_HEADER))
    except FileNotFoundError:
        raise RecordingError(
            f"{path} does not exist: make a recording with `anymps run --record FILE script.py`"
        ) from None
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}") from None
    if header != _SQLITE_HEADER:
        what = "is empty" if not header else "is not a recording"
        raise RecordingError(f"{path} {what}: give a file that `anymps run --record` made")
    try:
        connection = connect(path)
        try:
            harden(connection)
            _check_identity(path, connection)
        except BaseException:
            connection.close()
            raise
    except DAMAGE as error:
        raise damaged(path, error) from None
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}") from None
    return connection


def damaged(path: Path | str, error: object) -> RecordingError:
    """The error for a recording that cannot be read through; its reason in one line, whatever the file says."""
    reason = ascii(str(error))[1:-1].replace("\\'", "'") if not str(error).isprintable() else str(error)
    return RecordingError(f"{path} is damaged ({reason[:_LONGEST_REASON]}): record again, or use an intact copy")


def _check_identity(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application != APPLICATION_ID or "meta" not in tables:
        raise RecordingError(f"{path} is another program's SQLite file: give a file that `anymps run --record` made")
    check_table(connection, "meta")
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    version = row[0] if row and isinstance(row[0], str) else "none"
    if not version.isdecimal() or len(version) > 9:
        raise DamageError("its schema has no number")
    if int(version) != SCHEMA_VERSION:
        raise RecordingError(
            f"{path} has recording schema {int(version)}, this anymps reads {SCHEMA_VERSION}: "
            "record again, or read it with the anymps that made it"
        )
    check_schema(connection)
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise DamageError(str(verdict).splitlines()[-1])


_T = TypeVar("_T")


class OpenFile:
    """An open connection to a recording. Every method raises RecordingError for a file that is damaged or closed."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._hold(connection)
        self._name = name

    def _hold(self, connection: sqlite3.Connection) -> None:
        # Recordings are handed around freely; forgetting to close a file that is only read harms nobody. By a
        # finalizer, since the `__del__` of what is in a circle may come after the connection's own, which has warned
        # of not being closed since Python 3.13.
        self._connection = connection
        self._close = weakref.finalize(self, connection.close)
        self._close.atexit = False

    def close(self) -> None:
        """Let go of the file."""
        self._close()

    def check(self) -> None:
        """Hold every value to its column, as a file may have been made by others."""
        try:
            check_rows(self._connection)
        except DAMAGE as error:
            raise self.damaged(error) from None

    def settle(self, *, foreign: bool) -> None:
        """Make rows and steps of what a run that did not end left packed, in memory, away from the file."""
        try:
            with closed_on_error(connect_memory()) as memory:
                self._connection.backup(memory)
            self.close()
            self._hold(memory)
            expand_spool(memory)
            if foreign:
                self.check()  # what was packed, too
            settle_steps(memory)
        except DAMAGE as error:
            raise self.damaged(error) from None

    def meta(self) -> tuple[dict[str, object], Meta]:
        """The facts about the run, as they are stored and as they are typed."""
        return self.read(read_meta, self.rows("SELECT key, value FROM meta ORDER BY key"))

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.ProgrammingError:
            raise self._was_closed() from None
        except DAMAGE as error:
            raise self.damaged(error) from None

    def stream(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, one by one as they are read."""
        try:
            # Through a chain: `yield from` calls the `close` of what it has not read to its end, and that of a cursor
            # fails once the file is closed. Python would print that as an exception that it ignores.
            yield from chain(self._connection.execute(statement))
        except sqlite3.ProgrammingError:
            raise self._was_closed() from None
        except DAMAGE as error:
            raise self.damaged(error) from None

    def read(self, read: Callable[..., _T], *stored: Any) -> _T:
        """What `read`, a function of `_strict.py`, makes of a stored value."""
        try:
            return read(*stored)
        except DamageError as error:
            raise self.damaged(error) from None

    def damaged(self, what: object) -> RecordingError:
        """What is wrong with the file, in one line."""
        return damaged(self._name, what)

    def _was_closed(self) -> RecordingError:
        return RecordingError(f"{self._name} was closed: open it again to read it")
