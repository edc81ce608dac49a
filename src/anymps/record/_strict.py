"""Checks a recording from elsewhere before it is used: exact tables, types, ranges and JSON.

What a file must look like is derived from `format/` and the vocabularies; what crosses needs no check later.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from anymps._numbers import read_json as json_value
from anymps._vocabulary import Direction, Fate, Flag, Phase, RefusalKind, Role, RoundKind, Wait
from anymps.record._facts import Form, Noted, Optimizer
from anymps.record._meta import Meta, UnfitError, hints, read
from anymps.record.format import MOST, RANGES, TABLES

_LONGEST_VALUE: Final = 1 << 29  # bytes of one text or blob: a second of the busiest tape is a tenth of it
_LONGEST_TEXT: Final = 1 << 24  # characters of one text
_LONGEST_NAME: Final = 1 << 16
_DEEPEST: Final = 32  # levels of JSON
_LIMIT_LENGTH, _LIMIT_ATTACHED = 0, 7  # sqlite3.h; Python 3.10 has no names for them

_WORDS: Final[Mapping[str, Mapping[str, type[Enum]]]] = {
    "INTEGER": {
        "phase": Phase, "died_phase": Phase, "wait": Wait, "direction": Direction, "fate": Fate, "role": Role,
        "kind": RoundKind,
    },
    "TEXT": {"kind": RefusalKind},
}  # fmt: skip
_NAMES: Final = ("key", "name", "path", "type", "file", "function", "via", "error")
_MOMENTS: Final = ("start_ns", "end_ns")


_NOTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "loader": {"workers": int},
    "package": {"name": str, "bytes": int, "seconds": float},
    "numbers": {
        **dict.fromkeys(("kind", "operator", "dtype", "layout", "expected", "found", "allowed", "bound"), str),
        **dict.fromkeys(("wrong", "count", "order", "follows"), int),
    },
}  # fmt: skip

_OPTIMIZER: Final = {
    name: kind for name, kind in hints(cast("Any", Optimizer)).items() if name not in ("occurrence", "facts", "other")
}


class DamageError(Exception):
    """What is wrong with a file, in a few words."""


DAMAGE: Final = (sqlite3.Error, DamageError, UnicodeError, OverflowError)
"""What reading raises for a damaged file.

Python fails with a UnicodeError to tell an error of SQLite's that quotes bytes which are no text, and with an
OverflowError to store a number that SQLite has no room for.
"""


class _Column(NamedTuple):
    name: str
    kind: str
    nullable: bool


def harden(connection: sqlite3.Connection) -> None:
    """Let SQLite believe nothing in the file: no functions in its schema, no writing, no other file, no giant value."""
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    if hasattr(connection, "setlimit"):  # Python 3.11
        connection.setlimit(_LIMIT_LENGTH, _LONGEST_VALUE)
        connection.setlimit(_LIMIT_ATTACHED, 0)


def check_table(connection: sqlite3.Connection, table: str) -> None:
    """Raise DamageError unless this table is there as recordings have it."""
    found = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    if not found:
        raise DamageError(f"no table {table}")
    if found != [("table", f"CREATE TABLE {table} ({TABLES[table]})")]:
        raise DamageError(f"table {table} has other columns")


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise DamageError unless the file has the tables of a recording, and nothing else: no view, trigger or index."""
    for table in TABLES:
        check_table(connection, table)
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        own_index = kind == "index" and sql is None and str(name).startswith("sqlite_autoindex_")
        if name not in TABLES and not own_index:
            raise DamageError(f"a {kind} that no recording has")


def check_rows(connection: sqlite3.Connection) -> None:
    """Raise DamageError unless every value is of its column's type and within its range."""
    for table in TABLES:
        conditions = {column.name: _condition(table, column) for column in _columns(table)}
        wrong = " OR ".join(f"NOT ({condition})" for condition in conditions.values())
        if connection.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone() is None:
            continue
        for name, condition in conditions.items():
            if connection.execute(f"SELECT 1 FROM {table} WHERE NOT ({condition}) LIMIT 1").fetchone() is not None:
                raise DamageError(f"{table}.{name} holds an impossible value")
    if connection.execute("SELECT 1 FROM steps WHERE end_ns < start_ns LIMIT 1").fetchone() is not None:
        raise DamageError("a step ends before it starts")


def _columns(table: str) -> Iterator[_Column]:
    for declaration in re.sub(r", PRIMARY KEY \(.*\)$", "", TABLES[table]).split(", "):
        name, kind, *rest = declaration.split()
        yield _Column(name, kind, nullable=not rest)


def _condition(table: str, column: _Column) -> str:
    """What must hold for a value of this column; never NULL itself."""
    name, kind, nullable = column
    conditions = [f"typeof({name}) = '{kind.lower()}'"]
    if name in _WORDS.get(kind, {}):
        words = (repr(word.value) if kind == "TEXT" else str(int(word.value)) for word in _WORDS[kind][name])
        conditions.append(f"{name} IN ({', '.join(words)})")
    elif kind == "INTEGER" and name == "flags":
        conditions.append(f"{name} BETWEEN 0 AND {sum(Flag)}")
    elif kind == "INTEGER" and name in RANGES.get(table, {}):
        least, most = RANGES[table][name]
        conditions.append(f"{name} BETWEEN {least} AND {most}")
    elif kind == "INTEGER" and name != "key":  # a key tells two optimizers apart, and may be any number
        conditions.append(f"{name} BETWEEN {-MOST if name in _MOMENTS else 0} AND {MOST}")
    elif kind == "TEXT":
        most = _LONGEST_NAME if name in _NAMES else _LONGEST_TEXT
        conditions.append(f"length({name}) <= {most}")
        if name in _NAMES:
            conditions.append(f"instr({name}, char(0)) = 0")
    condition = " AND ".join(conditions)
    return f"({name} IS NULL OR {condition})" if nullable else condition


def read_json(text: str) -> Any:
    """What a JSON text of the file says. Raises DamageError for one that is none, too deep or holds no real number."""
    try:
        value = json_value(text)
    except RecursionError:
        raise DamageError("JSON that is nested too deep") from None
    except ValueError as error:
        raise DamageError(str(error)) from None
    _check_depth(value)
    return value


def _typed(kind: Any, value: object, what: str) -> Any:
    try:
        return read(kind, value)
    except UnfitError:
        raise DamageError(f"{what} is invalid") from None


def read_texts(text: str) -> tuple[str, ...]:
    """A JSON list of texts."""
    return cast("tuple[str, ...]", _typed(tuple[str, ...], read_json(text), "a list of tensors"))


def read_object(text: str) -> dict[str, object]:
    """A JSON object."""
    value = read_json(text)
    if not isinstance(value, dict):
        raise DamageError("a detail is not a JSON object")
    return value


@lru_cache(maxsize=4096)
def read_form(text: str) -> Form:
    """The form of a signature. Members that are not known are passed over."""
    return cast("Form", _typed(Form, read_object(text), "the form of a call"))


def read_facts(what: str, text: str) -> dict[str, object]:
    """The facts of a note. Those that findings cannot do without are there and of their types."""
    facts = read_object(text)
    for name, kind in _NOTED.get(what, {}).items():
        _typed(kind, facts.get(name), f"a note about a {what}")
    return facts


def read_optimizer(noted: Noted) -> Optimizer:
    """A note about an optimizer as what it is. An option that is null is not known."""
    known = {name: value for name, value in noted.facts.items() if value is not None and name in _OPTIMIZER}
    facts = {name: _typed(_OPTIMIZER[name], value, "a note about an optimizer") for name, value in known.items()}
    try:
        return Optimizer(noted.occurrence, noted.facts, noted.other, **facts)
    except TypeError:
        raise DamageError("a note about an optimizer is invalid") from None


def read_meta(rows: list[tuple[str, str]]) -> tuple[dict[str, object], Meta]:
    """The facts about a run as they are stored, and with their types; what anymps does not know may be anything."""
    stored = {key: read_json(value) for key, value in rows}
    try:
        return stored, Meta.read(stored)
    except UnfitError as error:
        raise DamageError(f"meta {str(error)!r} is invalid") from None


def _check_depth(value: object, level: int = 0) -> None:
    if level > _DEEPEST:
        raise DamageError("JSON that is nested too deep")
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, level + 1)
