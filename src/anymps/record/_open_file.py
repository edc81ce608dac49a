"""A recording's file while it is open: rows and values, and one line for whatever is wrong with it."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeVar

from anymps._errors import RecordingError
from anymps.record._file import damaged
from anymps.record._meta import Meta
from anymps.record._rounds import settle_steps
from anymps.record._snapshot import closed_on_error, connect_memory
from anymps.record._strict import DAMAGE, DamageError, check_rows, read_meta
from anymps.record.format import expand_spool

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
