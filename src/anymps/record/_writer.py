"""Writing a recording: cheap inserts during the run, rows when it ends, readable after a kill at any time."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from json import dumps  # the program may have replaced it when a recording is closed
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anymps._errors import RecordingError
from anymps.record._file import open_readonly
from anymps.record._place import check_free, held, name_of_new, remove_recording, take_name
from anymps.record._redact import redact, redact_arguments, redact_json, redact_note, redact_source
from anymps.record._rounds import settle_steps
from anymps.record._snapshot import closed_on_error, connect_memory, new_identity, own_writer, register, unregister
from anymps.record.format import ENTRY, Packed, Row, create_tables, expand_spool

if TYPE_CHECKING:
    from anymps.record._recording import Recording

_PUT_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_KEPT: Final[Mapping[str, Callable[[Row], Row]]] = {
    "operators": lambda row: (row[0], redact_note(row[1])),
    "sites": lambda row: (*row[:4], redact_source(row[4]), *row[5:7], *map(redact_source, row[7:])),
    "refusals": lambda row: (*row[:4], redact(row[4]), *row[5:7], dumps(redact_json(dict(row[7])))),
    "rounds": lambda row: (None, *row),
}
"""What is kept of a row, by table; of the others all."""
_CHECKPOINT_PAGES = 16384  # 64 MiB: a checkpoint syncs the disk, and the training thread would wait for it


class RecordingWriter:
    """Fills one recording. Every method may be called from any thread of the process that opened it.

    What was committed survives a kill (`SIGKILL`, `os._exit`): the file then opens as an incomplete recording. In a
    forked child every method does nothing, so a data loader's workers cannot harm the file. A file that takes no more
    (a full disk) raises RecordingError; `abandon` then leaves what was committed before.
    """

    def __init__(self, path: str | os.PathLike[str] | None, meta: Mapping[str, object]) -> None:
        """Open `path` for a new recording; None keeps it in memory.

        An older recording at `path` is replaced, but only once the new one is ready. Raises RecordingError if the place
        cannot be written, if another process is writing there, or if the file there is anything but a recording.
        """
        self._path = Path(path) if path is not None else None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        self._abandoned = False
        self._at_rest = False
        identity = self._identity = new_identity()
        self._descriptors = Descriptors()
        try:
            if self._path is None:
                self._connection = _create_in_memory(identity, meta)
                self._connection.execute("BEGIN IMMEDIATE")
            else:
                # A link stays one, and the file that it means is replaced.
                self._file = Path(os.path.realpath(self._path))
                self._connection = _create(self._file, identity, meta)
                self._descriptors.find(self._file)
                # Only `close` may end it: where Python does so by itself, nobody looks whose descriptors they are.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
                register(self._file, self)
        except sqlite3.Error as error:
            raise RecordingError(f"{self._name} cannot be written: {error}") from None
        # A writer that nobody closed leaves an incomplete recording, as a kill does. One that is there when Python ends
        # may still be closed by what ends the run.
        weakref.finalize(self, _let_go, self._connection, self._process, self._descriptors).atexit = False

    @classmethod
    def in_memory(cls, meta: Mapping[str, object] | None = None) -> RecordingWriter:
        """A writer without a file; `recording()` gives what was written."""
        return cls(None, meta or {})

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_meta(self, key: str, value: object) -> None:
        """Set one fact about the run; `value` is anything that JSON holds. What looks like a secret is left out."""
        self._run(_PUT_META, [_row(key, value)])

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Add rows of a table, each with all its columns; one with the same key replaces an older one.

        What looks like a secret is left out. Totals are running ones, of all entries so far, kept in detail or not.
        Rows of `steps` count as long as there are no `rounds` to tell steps by, which are numbered as they come. The
        `entry` of a refusal is 0 where a packed entry names it; it is filled in when the entries become rows.
        """
        kept = list(map(_KEPT.get(table, tuple), rows))
        if kept:
            self._run(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(kept[0]))})", kept)

    def spool(self, chunk: bytes, packed: Packed = ENTRY) -> None:
        """Store packed rows as they are. Raises RecordingError for a broken one."""
        packed.check(chunk)
        if chunk:
            self._run(f"INSERT INTO {packed.spool} (chunk) VALUES (?)", [(chunk,)])

    def commit(self) -> None:
        """Make everything written so far survive a kill of the process."""
        with self._writing() as connection:
            if connection is not None:
                self._commit(connection)
                # Always inside a transaction, so that a second writer finds the file taken.
                connection.execute("BEGIN IMMEDIATE")

    def close(self) -> None:
        """Turn the packed entries into rows and mark the recording complete. Closing twice is harmless."""
        if self._closed:
            return
        with self._writing() as connection:
            if connection is None:
                return
            expand_spool(connection)
            settle_steps(connection)
            connection.execute(_PUT_META, ("complete", "true"))
            self._commit(connection)
            self._closed = True
            if self._path is not None:
                self._end(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Every change carries the number of the file, by which its journal is known."""
        connection.execute(f"PRAGMA user_version = {self._identity}")
        connection.execute("COMMIT")

    def _end(self, connection: sqlite3.Connection) -> None:
        """Make the recording one plain file at its place, and let go of it. Where that fails it stays readable here."""
        with held(self._file):
            if own_writer(self._file) is self:
                try:
                    connection.execute("PRAGMA journal_mode = DELETE")
                except sqlite3.OperationalError:  # another program has it open, or the disk is full
                    with suppress(sqlite3.OperationalError):
                        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                    return
            elif os.path.lexists(self._file):
                raise RecordingError(
                    f"{self._name} belongs to another run by now: the file that this run was recorded into is gone"
                )
            else:
                self._put_back(connection)
            self._at_rest = True
            unregister(self)
            connection.close()

    def _put_back(self, connection: sqlite3.Connection) -> None:
        """Write the file again after somebody moved or removed it."""
        fresh = name_of_new(self._file)
        try:
            remove_recording(fresh)
            with closing(sqlite3.connect(fresh, isolation_level=None)) as copy:
                connection.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            take_name(fresh, self._file)
        except OSError as error:
            raise RecordingError(f"{self._name} cannot be written: {error.strerror}") from None
        finally:
            with suppress(OSError):
                remove_recording(fresh)

    def abandon(self) -> None:
        """Leave an incomplete recording of what was committed. From now on writing does nothing."""
        with self._lock:
            if os.getpid() != self._process or self._closed:
                return
            self._abandoned = self._closed = True
            if not self._descriptors.are_ours:
                unregister(self)
                self._at_rest = True  # as far as this process is concerned
                return
            with suppress(sqlite3.Error):  # SQLite has rolled back of its own accord after some errors
                self._connection.execute("ROLLBACK")

    def recording(self, *, checked: bool = False) -> Recording:
        """What has been written so far, to be read; later writing does not change it.

        Packed entries count too. Once the file is whole, this opens it. What came from elsewhere is to be `checked`,
        value by value; RecordingError is raised for one that no recording holds.
        """
        from anymps.record._recording import Recording  # who only writes does not wait for all that reads

        if self._path is not None and self._at_rest:
            return Recording(open_readonly(self._path), self._name, foreign=checked)
        if not self._closed:
            self.commit()
        return Recording(self.snapshot(), self._name, foreign=checked)

    def snapshot(self) -> sqlite3.Connection:
        """What was committed so far, as a database in memory."""
        with closed_on_error(connect_memory()) as copy, self._lock:
            self._check_descriptors()
            # SQLite copies no database whose writer has a transaction open.
            if not self._closed:
                self._commit(self._connection)
            try:
                self._connection.backup(copy)
            finally:
                if not self._closed:
                    self._connection.execute("BEGIN IMMEDIATE")
        return copy

    def _run(self, statement: str, rows: Sequence[Row]) -> None:
        with self._writing() as connection:
            if connection is None:
                return
            try:
                connection.executemany(statement, rows)
            except UnicodeEncodeError:  # a file whose name is no text; the rows before it are written again
                connection.executemany(statement, map(_as_text, rows))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection | None]:
        """The connection, held by this thread; None in a forked child. Failures of SQLite become RecordingErrors."""
        if os.getpid() != self._process:
            yield None
            return
        with self._lock:
            if self._abandoned:
                yield None
                return
            if self._closed:
                raise RecordingError(f"{self._name} was closed: nothing more can be written to it")
            self._check_descriptors()
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise RecordingError(f"{self._name} cannot be written: {error}") from None
            except OverflowError:
                raise RecordingError(f"{self._name} cannot be written: a number is too large for the file") from None

    def _check_descriptors(self) -> None:
        """Raise RecordingError where the numbers by which SQLite writes may be another file's by now."""
        if not self._descriptors.are_ours:
            raise RecordingError(
                f"{self._name} cannot be written: the program has closed file descriptors that it did not open"
            )

    @property
    def _name(self) -> str:
        return "the recording in memory" if self._path is None else str(self._path)


class Numbered:
    """Rows of a table that are numbered from 1 by what they say, each written once."""

    def __init__(self, writer: RecordingWriter, table: str) -> None:
        self._writer, self._table = writer, table
        self._numbers: dict[Row, int] = {}

    def number(self, *content: object) -> int:
        """The number of one row."""
        return self.take([(0, *content)])[0]

    def take(self, rows: Iterable[Row]) -> dict[int, int]:
        """Take over rows that begin with their number elsewhere; the answer leads from it to the one here."""
        numbers, new = {}, []
        for own, *rest in rows:
            content = tuple(rest)
            if content not in self._numbers:
                self._numbers[content] = len(self._numbers) + 1
                new.append((self._numbers[content], *content))
            numbers[own] = self._numbers[content]
        self._writer.add(self._table, new)
        return numbers


def _let_go(connection: sqlite3.Connection, process: int, descriptors: Descriptors) -> None:
    if process == os.getpid() and descriptors.are_ours:  # a forked child must not touch it
        connection.close()


def _as_text(row: Row) -> Row:
    """The row with bytes of names that are no text written out, as `\\udcff`."""
    return tuple(
        value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for value in row
    )


def _row(key: str, value: object) -> tuple[str, str]:
    """A row of `meta`. What looks like a secret is left out."""
    if key in ("schema_version", "complete"):
        raise RecordingError(f"meta {key!r} belongs to the file format and cannot be set")
    if key == "arguments" and isinstance(value, (list, tuple)):
        value = redact_arguments([str(word) for word in value])
    return key, dumps(redact_json(value))


def _make_recording(connection: sqlite3.Connection, identity: int, meta: Mapping[str, object]) -> None:
    """Make an empty database a recording of a run of which only these facts are known."""
    create_tables(connection)
    connection.execute(f"PRAGMA user_version = {identity}")
    connection.executemany(_PUT_META, [_row(key, value) for key, value in meta.items()])


def _create_in_memory(identity: int, meta: Mapping[str, object]) -> sqlite3.Connection:
    with closed_on_error(connect_memory()) as connection:
        _make_recording(connection, identity, meta)
    return connection


def _create(path: Path, identity: int, meta: Mapping[str, object]) -> sqlite3.Connection:
    """Put a new recording at `path`, connect to it and begin to write: from then on the name is taken."""
    # Beside the target, so that moving it there is one step; SQLite must not be connected while its file is renamed.
    fresh = name_of_new(path)
    try:
        with held(path):
            check_free(path)
            remove_recording(fresh)  # of one that was killed right here
            try:
                with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
                    connection.execute("BEGIN")
                    _make_recording(connection, identity, meta)
                    connection.execute("COMMIT")
                take_name(fresh, path)
            finally:
                with suppress(OSError):
                    remove_recording(fresh)
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
            with closed_on_error(connection):
                # Write-ahead logging: what is committed is safe from the process's death without waiting for the disk.
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
                connection.execute("BEGIN IMMEDIATE")
    except OSError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror}") from None
    return connection


class Descriptors:
    """The descriptors of a recording's file, which a program may close, and reuse for its own files.

    SQLite keeps using their numbers, whatever file has them then (sqlite.org/howtocorrupt.html, "Continuing to use a
    file descriptor after it has been closed"). None where the system does not tell, or of one in memory.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, int]] = {}
        self._lost = False

    def find(self, path: Path) -> None:
        """Look for those of the file and of what SQLite has open beside it."""
        keys = set()
        for ending in ("", "-wal", "-shm"):
            with suppress(OSError):
                status = os.stat(f"{path}{ending}")
                keys.add((status.st_dev, status.st_ino))
        with suppress(OSError):
            numbers = map(int, os.listdir("/dev/fd"))
            self._found = {number: key for number in numbers if (key := _key(number)) in keys and key is not None}

    @property
    def are_ours(self) -> bool:
        """Whether each still is the file that it was. Once one was not, none is used any more."""
        self._lost = self._lost or any(_key(number) != key for number, key in self._found.items())
        return not self._lost


def _key(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino
