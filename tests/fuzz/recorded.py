"""Recordings for the fuzzer: good ones, also of killed runs with their journals, and changes of their tables."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random

from anymps._settings import FORMATS
from anymps.record import Phase, Recording, Role, RoundKind
from anymps.record._meta import Meta, hints
from anymps.record._strict import _columns
from anymps.record.format._schema import TABLES
from fuzz.mutate import VALUES
from recordings import bytes_of, hostile, refusing, small, training

_JOURNAL = b"\0the journal\0"  # stands between a file and its journal
_COLUMNS = [(table, column.name) for table in TABLES for column in _columns(table)]
_CELLS = (
    *(
        b"",
        b"\xff\xfe",
        b"x" * 64,
        "[" * 5000,
        '"\\ud800"',
        '{"a": ' * 900 + "1" + "}" * 900,
        "[[1, 2], {}]",
        "missing",
    ),
    *("float32[2, 3]", '["float32[-1, 99999999999999999999]"]', '["x[", "int8[]"]', "aten::mm", "anymps::loader []"),
    *("anymps::loader {}", 'anymps::optimizer {"name": [], "tensors": {}}', "anymps::born 5", "anymps::copy.MPS999 x"),
    *("anymps::hazard.MPS601 x", "C:\\x.py", "\\\\host\\share", "]]>", "\x1b[2J\x1b]0;title\x07", "\u202e\u2066"),
)
_SCHEMES = (
    *("CREATE VIEW extra AS SELECT * FROM entries", "CREATE TABLE extra (x)", "CREATE INDEX i ON entries (site)"),
    *("CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM entries; END", "DROP TABLE {table}"),
    *("ALTER TABLE {table} ADD COLUMN extra TEXT", "ALTER TABLE {table} RENAME TO other", "PRAGMA user_version = 7"),
    *("CREATE VIRTUAL TABLE f USING fts5(x)", "DELETE FROM {table}", "DELETE FROM {table} WHERE rowid % 2"),
    *("UPDATE meta SET value = 'false' WHERE key = 'complete'", "DELETE FROM meta WHERE key = 'complete'"),
    *("INSERT INTO spool (chunk) VALUES (randomblob(64))", "INSERT INTO spool (chunk) VALUES (zeroblob(640))"),
    "INSERT INTO allocation_spool (chunk) VALUES (randomblob(96))",
    *(f"UPDATE meta SET value = '{version}' WHERE key LIKE 'schema%'" for version in ("2.0", "99", "[")),
    "ALTER TABLE meta RENAME TO m; CREATE VIEW meta AS SELECT * FROM m",
)


def habits() -> Recording:
    """A run with every note that findings look at, with memory and with rounds."""
    builder = training(steps=4)
    line = builder.site("/home/me/project/train.py", 8, "main", "loader = DataLoader(data, num_workers=2)")
    notes: dict[str, dict[str, object]] = {
        "loader": {"workers": 2, "pin_memory": True, "on_mps": "collate", "start_method": "", "guarded": False,
                   "persistent": False, "unpicklable": "lambda"},
        "optimizer": {"name": "Adam", "torch": True, "tensors": 9, "on_mps": 9, "dtypes": ["float16"],
                      "fused": ["None"], "foreach": ["True"], "differentiable": ["False"], "eps": ["1e-08"]},
        "grad_scaler": {"device": "cuda"}, "autocast": {"dtype": "float16", "device": "mps"},
        "backward": {"autocast": "mps"}, "compile": {"backend": "inductor", "mode": "None", "layer_norm": True},
        "miscompiled": {"expression": "(i / 65536) % 6"},
        "package": {"name": "model.pt2", "bytes": 4096, "seconds": 1.5},
        "repeated_scatter": {"kernel": "generated_kernel_1", "threads": 40},
        "constant": {"name": "mask", "kept": "", "bytes": 4096},
        "data_set": {"name": "images", "bytes": 4096}, "device_type": {"name": "kind", "call": "autocast"},
        "backend_attribute": {"name": "deterministic"},
        "born": {"expression": "torch.randn(3)", "generator": False},
        "round_trip": {"operators": ["aten::relu"]}, "cuda": {}, "anomaly": {}, "device_time": {},
    }  # fmt: skip
    for number, (what, facts) in enumerate(notes.items()):
        for again in range(4):
            builder.note(what, start_ns=number * 100 + again, site=line, other=line, **facts)
    for number in range(6):
        held = builder.allocation(1 << 20, "aten::mm", time_ns=number, phase=Phase.FORWARD, site=line, role=Role.BUFFER)
        if number % 2:
            builder.free(held, time_ns=number + 1, phase=Phase.BACKWARD)
        builder.round(RoundKind.OPTIMIZER, start_ns=number * 100, end_ns=number * 100 + 50, site=line, key=1)
    return builder.close()


@cache
def seeds() -> list[bytes]:
    """The recordings, and each as a run that was killed would leave it, with its journal."""
    made = (training(steps=3).close(), habits(), refusing(), small(), hostile())
    files = [bytes_of(recording) for recording in made]
    return [*files, *map(_killed, files)]


def _killed(content: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        path.write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("DELETE FROM meta WHERE key = 'complete'")
            connection.execute("UPDATE entries SET duration_ns = duration_ns + 1")
            return path.read_bytes() + _JOURNAL + path.with_name("run-wal").read_bytes()


def place(data: bytes) -> list[list[str]]:
    """One of the forms of a report, and one of the commands that take two recordings."""
    content, _, journal = data.partition(_JOURNAL)
    Path("run.anymps").write_bytes(content)
    if journal:
        Path("run.anymps-wal").write_bytes(journal)
    Path("other.anymps").write_bytes(seeds()[0])
    random = Random(data)
    both = random.sample(["run.anymps", "other.anymps"], 2)
    more = [
        ["report", "--format", random.choice(FORMATS), *both],
        ["diff", "--format", random.choice(("terminal", "html", "markdown")), *both],
    ]
    return [["report", "--format", random.choice(FORMATS), "run.anymps"], random.choice(more)]


def tables(random: Random, data: bytes) -> bytes:
    """Cells, facts, notes, details of refusals or whole tables changed; a database still."""
    content, *journal = data.partition(_JOURNAL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        path.write_bytes(content)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                for _ in range(random.choice((1, 1, 2))):
                    random.choice(_CHANGES)(random, connection)
        except (sqlite3.Error, OverflowError, UnicodeError, IndexError):  # damaged before, or no value for SQLite
            pass
        return b"".join([path.read_bytes(), *journal])


def journals(random: Random, data: bytes) -> bytes:
    """The journal of another run."""
    other = random.choice(seeds()[len(seeds()) // 2 :])
    return data.partition(_JOURNAL)[0] + _JOURNAL + other.partition(_JOURNAL)[2]


def _cell(random: Random, connection: sqlite3.Connection) -> None:
    table, column = random.choice(_COLUMNS)
    one = f"WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {random.randint(0, 40)})"
    value = random.choice(_CELLS if random.random() < 0.5 else VALUES)
    connection.execute(f"UPDATE {table} SET {column} = ? {random.choice((one, ''))}", (value,))


def _fact(random: Random, connection: sqlite3.Connection) -> None:
    row = random.choice([*hints(Meta), "other"]), json.dumps(_value(random))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)


def _note(random: Random, connection: sqlite3.Connection) -> None:
    found = connection.execute("SELECT id, name FROM operators WHERE name LIKE 'anymps::% {%'").fetchall()
    number, text = random.choice(found)
    note, _, facts = text.partition(" ")
    said = json.loads(facts)
    if said and random.random() < 0.7:
        said[random.choice(sorted(said))] = _value(random)
    elif random.random() < 0.5:
        said = _value(random)
    else:
        note = "anymps::other"
    connection.execute("UPDATE operators SET name = ? WHERE id = ?", (f"{note} {json.dumps(said)}", number))


def _detail(random: Random, connection: sqlite3.Connection) -> None:
    key = random.choice(("name", "expression", "caller", "event", "operator", "numpy_default"))
    text = json.dumps({"operator": "aten::mm", key: _value(random)})
    connection.execute("UPDATE refusals SET detail = ?", (text,))


def _scheme(random: Random, connection: sqlite3.Connection) -> None:
    connection.executescript(random.choice(_SCHEMES).format(table=random.choice(sorted(TABLES))))


def _value(random: Random) -> object:
    words = ("name", "status", "exception", "message", "how", "x")
    leaves = [random.choice(VALUES) for _ in range(3)]
    return random.choice((leaves[0], leaves, dict(zip(random.sample(words, 3), leaves, strict=True))))


_CHANGES: tuple[Callable[[Random, sqlite3.Connection], None], ...] = (*[_cell] * 3, _fact, _note, _detail, _scheme)
