"""Writing a recording: cheap inserts during the run, rows when it ends, readable after a kill at any time."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from json import dumps  # the program may have replaced it when a recording is closed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymps._errors import RecordingError
from anymps.record._descriptors import Descriptors
from anymps.record._file import open_readonly
from anymps.record._place import check_free, held, name_of_new, remove_recording, take_name
from anymps.record._redact import redact, redact_arguments, redact_json, redact_note, redact_source
from anymps.record._rounds import settle_steps
from anymps.record._snapshot import closed_on_error, connect_memory, new_identity, own_writer, register, unregister
from anymps.record.format import (
    ALLOCATION,
    ModuleRow,
    OperatorRow,
    RefusalRow,
    RoundRow,
    SignatureRow,
    SiteRow,
    StepRow,
    TotalRow,
    check_chunk,
    create_tables,
    expand_spool,
)

if TYPE_CHECKING:
    from anymps.record._recording import Recording

_PUT_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
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

    def add_operators(self, rows: Iterable[OperatorRow]) -> None:
        """Add `(id, name)` rows. Here and below, a row with the same key replaces it."""
        self._insert("operators", 2, ((number, redact_note(name)) for number, name in rows))

    def add_signatures(self, rows: Iterable[SignatureRow]) -> None:
        """Add `(id, operator, fate, inputs, outputs, form)` rows; the last three are JSON."""
        self._insert("signatures", 6, rows)

    def add_modules(self, rows: Iterable[ModuleRow]) -> None:
        """Add `(id, path, type)` rows."""
        self._insert("modules", 3, rows)

    def add_sites(self, rows: Iterable[SiteRow]) -> None:
        """Add `(id, file, line, function, source, via, first, around, comments)` rows.

        What looks like a secret in the source is left out, as it is in the messages of refusals.
        """
        self._insert(
            "sites", 9, ((*row[:4], redact_source(row[4]), *row[5:7], *map(redact_source, row[7:])) for row in rows)
        )

    def add_refusals(self, rows: Iterable[RefusalRow]) -> None:
        """Add `(id, entry, kind, error, message, site, origin, detail)` rows.

        `entry` is 0 for a refusal that a packed entry names; it is filled in when the entries become rows.
        """
        kept = ((*row[:4], redact(row[4]), *row[5:7], dumps(redact_json(dict(row[7])))) for row in rows)
        self._insert("refusals", 8, kept)

    def add_steps(self, rows: Iterable[StepRow]) -> None:
        """Add `(step, start_ns, end_ns)` rows: steps as long as there are no rounds to tell them by."""
        self._insert("steps", 3, rows)

    def add_rounds(self, rows: Iterable[RoundRow]) -> None:
        """Add `(kind, key, site, start_ns, end_ns)` rows, from which the steps follow (see `_rounds.py`)."""
        self._run("INSERT INTO rounds (kind, key, site, start_ns, end_ns) VALUES (?, ?, ?, ?, ?)", rows)

    def add_totals(self, rows: Iterable[TotalRow]) -> None:
        """Set the running totals of all entries so far, kept in detail or not. A total only ever grows."""
        self._insert("totals", 9, rows)

    def spool(self, chunk: bytes) -> None:
        """Store packed entries (64 bytes each) as they are. Raises RecordingError for a broken one."""
        check_chunk(chunk)
        if chunk:
            self._run("INSERT INTO spool (chunk) VALUES (?)", [(chunk,)])

    def spool_allocations(self, chunk: bytes) -> None:
        """Store packed rows of `allocations` (96 bytes each) as they are. Raises RecordingError for a broken one."""
        check_chunk(chunk, ALLOCATION)
        if chunk:
            self._run("INSERT INTO allocation_spool (chunk) VALUES (?)", [(chunk,)])

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

    def _insert(self, table: str, columns: int, rows: Iterable[tuple[Any, ...]]) -> None:
        self._run(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * columns)})", rows)

    def _run(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._writing() as connection:
            if connection is None:
                return
            rows = list(rows)
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


def _let_go(connection: sqlite3.Connection, process: int, descriptors: Descriptors) -> None:
    if process == os.getpid() and descriptors.are_ours:  # a forked child must not touch it
        connection.close()


def _as_text(row: tuple[Any, ...]) -> tuple[Any, ...]:
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
