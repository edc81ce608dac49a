"""Opens the file of a recording: everything that can be wrong with it is one RecordingError of one line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from anymps._errors import RecordingError
from anymps.record._snapshot import connect, own_writer
from anymps.record._strict import DAMAGE, DamageError, check_schema, check_table, harden
from anymps.record.format import APPLICATION_ID, SCHEMA_VERSION

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
