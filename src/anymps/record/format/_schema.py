"""The file format of a recording, version 3: tables, and how spooled entries become rows.

`docs/architecture/recording-file.md` states the format for people; this module is its one implementation.
"""

from __future__ import annotations

import re
import sqlite3
from itertools import chain
from typing import Any, Final, NamedTuple

from anymps._vocabulary import Direction, Fate
from anymps.record.format._packed import ALLOCATION, ENTRY

SCHEMA_VERSION: Final = 3
APPLICATION_ID: Final = 0x616E796D  # "anym": SQLite's own mark of what a database file is for

Row = tuple[Any, ...]
"""The values of a row, in the order of the table's columns."""

TABLES: Final[dict[str, str]] = {
    "meta": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    "operators": "id INTEGER PRIMARY KEY, name TEXT NOT NULL",
    "signatures": "id INTEGER PRIMARY KEY, operator INTEGER NOT NULL, fate INTEGER NOT NULL, "
    "inputs TEXT NOT NULL, outputs TEXT NOT NULL, form TEXT NOT NULL",
    "modules": "id INTEGER PRIMARY KEY, path TEXT NOT NULL, type TEXT NOT NULL",
    "sites": "id INTEGER PRIMARY KEY, file TEXT NOT NULL, line INTEGER NOT NULL, function TEXT NOT NULL, "
    "source TEXT NOT NULL, via TEXT NOT NULL, first INTEGER NOT NULL, around TEXT NOT NULL, "
    "comments TEXT NOT NULL",
    "entries": "id INTEGER PRIMARY KEY, signature INTEGER NOT NULL, module INTEGER NOT NULL, site INTEGER NOT NULL, "
    "phase INTEGER NOT NULL, step INTEGER NOT NULL, thread INTEGER NOT NULL, start_ns INTEGER NOT NULL, "
    "duration_ns INTEGER NOT NULL, wait INTEGER NOT NULL, direction INTEGER NOT NULL, flags INTEGER NOT NULL, "
    "moved_bytes INTEGER NOT NULL, sequence INTEGER NOT NULL, delayed_us INTEGER NOT NULL",
    "totals": "signature INTEGER NOT NULL, module INTEGER NOT NULL, site INTEGER NOT NULL, phase INTEGER NOT NULL, "
    "wait INTEGER NOT NULL, direction INTEGER NOT NULL, count INTEGER NOT NULL, duration_ns INTEGER NOT NULL, "
    "moved_bytes INTEGER NOT NULL, PRIMARY KEY (signature, module, site, phase, wait, direction)",
    "steps": "step INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, end_ns INTEGER",
    "rounds": "id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, key INTEGER NOT NULL, site INTEGER NOT NULL, "
    "start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL",
    "refusals": "id INTEGER PRIMARY KEY, entry INTEGER NOT NULL, kind TEXT NOT NULL, error TEXT NOT NULL, "
    "message TEXT NOT NULL, site INTEGER NOT NULL, origin INTEGER NOT NULL, detail TEXT NOT NULL",
    "spool": "id INTEGER PRIMARY KEY, chunk BLOB NOT NULL",
    "allocations": "id INTEGER PRIMARY KEY, born INTEGER NOT NULL, died INTEGER NOT NULL, born_ns INTEGER NOT NULL, "
    "died_ns INTEGER NOT NULL, bytes INTEGER NOT NULL, requested INTEGER NOT NULL, allocated INTEGER NOT NULL, "
    "reserved INTEGER NOT NULL, signature INTEGER NOT NULL, module INTEGER NOT NULL, site INTEGER NOT NULL, "
    "step INTEGER NOT NULL, died_step INTEGER NOT NULL, phase INTEGER NOT NULL, died_phase INTEGER NOT NULL, "
    "role INTEGER NOT NULL",
    "allocation_spool": "id INTEGER PRIMARY KEY, chunk BLOB NOT NULL",
}
"""The columns of each table.

Inputs and outputs of a signature are JSON lists of texts such as "float32[2, 3]"; "float32[...]" is of any size, where
too many sizes have come up to keep. Its form is the JSON object of a `Form`. The last three columns of a site are as in
a `Quote`. The `end_ns` of a step is NULL while it runs. The key of a round says which optimizer or module it is of, 0
for the other kinds.
"""

# Conditions on an entry joined with its signature `s`. Copies within the device are kernels of the GPU too.
ON_MPS: Final = f"(s.fate = {Fate.NATIVE:d} OR s.fate = {Fate.COPY:d} AND direction = {Direction.MPS_TO_MPS:d})"
ON_CPU: Final = f"(s.fate IN ({Fate.FALLBACK:d}, {Fate.ALWAYS_FALLBACK:d}))"

_NOT_ZERO = re.compile(rb"[^\0]")


class Picked(NamedTuple):
    """Calls by what holds for their signature `s` with its operator `o` (`of`), and for their entry `e` (`condition`).

    `values` stand for the `?` in both, in order.
    """

    of: str = "TRUE"
    condition: str = "TRUE"
    values: tuple[object, ...] = ()


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty database a recording without entries."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
    connection.execute("INSERT INTO modules VALUES (0, '', '')")
    connection.execute("INSERT INTO sites VALUES (0, '', 0, '', '', '', 0, '', '')")


def expand_spool(connection: sqlite3.Connection) -> None:
    """Turn the spooled chunks into `entries` rows, tell each refusal its entry, and empty the spool.

    The caller owns the transaction. Chunk by chunk, so that the space of one is used again for its rows.
    Raises RecordingError for a chunk that is cut short.
    """
    for packed in (ENTRY, ALLOCATION):
        columns = ", ".join(packed.columns)
        places = ", ".join("?" * len(packed.columns))
        for (identity,) in connection.execute(f"SELECT id FROM {packed.spool} ORDER BY id").fetchall():
            (chunk,) = connection.execute(f"SELECT chunk FROM {packed.spool} WHERE id = ?", (identity,)).fetchone()
            packed.check(chunk)
            connection.execute(f"DELETE FROM {packed.spool} WHERE id = ?", (identity,))
            (before,) = connection.execute(f"SELECT COALESCE(MAX(id), 0) FROM {packed.table}").fetchone()
            connection.executemany(
                f"INSERT OR REPLACE INTO {packed.table} ({columns}) VALUES ({places})", packed.iter_rows(chunk)
            )
            if packed is ENTRY:
                refusals = enumerate(ENTRY.iter_field("refusal", chunk), start=before + 1)
                connection.executemany(
                    "UPDATE refusals SET entry = ? WHERE id = ?", (numbers for numbers in refusals if numbers[1])
                )


def mattering(packed: bytes) -> bytes:
    """The packed entries that waited, were refused or copied between CPU and device."""
    found: set[int] = set()
    for byte in chain.from_iterable(map(ENTRY.bytes_of, ("wait", "direction", "refusal"))):
        found.update(match.start() for match in _NOT_ZERO.finditer(packed[byte :: ENTRY.size]))
    return b"".join(packed[index * ENTRY.size : (index + 1) * ENTRY.size] for index in sorted(found))
