"""Recordings from elsewhere: whatever is in them, reading ends well or in one line.

Hypothesis damages recordings (single cells, facts, tables, bytes, journals), and the commands read them: their exit
codes and all that they print are looked at. `ANYMPS_FUZZ_EXAMPLES` sets how many of each kind.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anymps
from anymps._errors import AnympsError
from anymps._settings import FORMATS
from anymps.commands import main
from anymps.findings import read_baseline
from anymps.record import Phase, Recording, Role
from anymps.record._strict import _columns
from anymps.record.format._schema import TABLES
from recordings import hostile, refusing, small, training

pytestmark = pytest.mark.usefixtures("virtual_device")

EXAMPLES = int(os.environ.get("ANYMPS_FUZZ_EXAMPLES", "15"))
PROFILE = settings(
    max_examples=EXAMPLES, deadline=None, database=None, derandomize="ANYMPS_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def habits() -> Recording:
    """A run with every note that findings look at, and with memory."""
    builder = training(steps=4)
    line = builder.site("/home/me/project/train.py", 8, "main", "loader = DataLoader(data, num_workers=2)")
    notes: dict[str, dict[str, object]] = {
        "loader": {"workers": 2, "pin_memory": True, "on_mps": "collate", "start_method": "", "guarded": False,
                   "persistent": False, "unpicklable": "lambda"},
        "optimizer": {"name": "Adam", "torch": True, "tensors": 9, "on_mps": 9, "dtypes": ["float16"],
                      "fused": ["None"], "foreach": ["True"], "differentiable": ["False"], "eps": ["1e-08"]},
        "grad_scaler": {"device": "cuda"}, "autocast": {"dtype": "float16", "device": "mps"},
        "backward": {"autocast": "mps"}, "compile": {"backend": "inductor", "mode": "None", "layer_norm": True},
        "graph_break": {"kind": "Data-dependent branching", "explanation": "", "skipped": False},
        "miscompiled": {"expression": "(i / 65536) % 6"},
        "repeated_scatter": {"kernel": "generated_kernel_1", "threads": 40},
        "recompiled": {"guard": "n == 3", "limit": "recompile_limit", "within": ""},
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
    return builder.close()


def captured() -> Recording:
    """A real run: two steps, a wait in each, a fallback that is missing, and a float64."""
    with anymps.record(script="train.py", argv=["--epochs", "2"]) as capture:
        model = torch.nn.Linear(4, 2, device="mps")
        optimizer = torch.optim.Adam(model.parameters())
        for x, y in torch.utils.data.DataLoader([(torch.ones(4), torch.ones(2))] * 4, batch_size=2):
            loss = torch.nn.functional.mse_loss(model(x.to("mps")), y.to("mps"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert loss.item() >= 0
        with contextlib.suppress(TypeError):
            torch.ones(3, dtype=torch.float64).to("mps")
    return capture.recording


SAMPLES: dict[str, Callable[[], Recording]] = {
    "training": lambda: training(steps=3).close(), "habits": habits, "refusing": refusing, "small": small,
    "hostile": hostile, "captured": captured,
}  # fmt: skip


@functools.cache
def sample(name: str) -> bytes:
    """One of the recordings as the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        with SAMPLES[name]() as recording, closing(sqlite3.connect(path)) as target:
            recording._file._connection.backup(target)
        return path.read_bytes()


def commands(path: Path, pick: int) -> Iterator[list[str]]:
    """One of the forms of a report, and one of the commands that take two recordings."""
    other = str(path.with_name("other"))
    yield ["report", "--format", FORMATS[pick % len(FORMATS)], str(path)]
    yield [
        ["report", "--format", FORMATS[pick % len(FORMATS)], str(path), other],
        ["report", "--format", "github", other, str(path)],
        ["join", str(path), other, "-o", str(path.with_name("joined"))],
        ["diff", "--format", "terminal", str(path), other],
        ["diff", "--format", "html", other, str(path)],
        ["diff", "--format", "json", str(path), other],
    ][pick // len(FORMATS)]


PICKS = st.integers(0, len(FORMATS) * 6 - 1)


def run_command(arguments: list[str]) -> tuple[int, str, str]:
    """The command's status and what it wrote, with what Python itself would print of exceptions that it ignores."""
    out, err = io.StringIO(), io.StringIO()
    ignored: list[str] = []
    hook, sys.unraisablehook = (
        sys.unraisablehook,
        lambda unraisable: ignored.append(f"Exception ignored: {unraisable.exc_value!r}\n"),
    )
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(arguments)
    finally:
        sys.unraisablehook = hook
    return status, out.getvalue(), err.getvalue() + "".join(ignored)


def one_line(error: AnympsError) -> None:
    """What a user is told."""
    text = str(error)
    assert text.isprintable(), repr(text)
    assert len(text) < 1000


def check(path: Path, pick: int) -> None:
    """Each command ends well or with one line, writes nothing that a terminal obeys, and leaves no file behind."""
    path.with_name("other").write_bytes(sample("training"))
    before = {file.name for file in path.parent.iterdir()}
    for arguments in commands(path, pick):
        status, out, err = run_command(arguments)
        assert status in (0, 1, 2), (arguments, status, err)
        for text in (out, err):
            assert all(character.isprintable() or character == "\n" for character in text), ascii(text)[:2000]
        if status == 2:
            assert err.count("\n") == 1, (arguments, err)
            assert len(err) < 1000, (arguments, err)
        else:
            assert all(line.startswith("anymps: ") for line in err.splitlines()), (arguments, err)
    assert {file.name for file in path.parent.iterdir()} - {"joined"} == before


def damaged(name: str, pick: int, change: Callable[[sqlite3.Connection], None]) -> None:
    """Change one of the recordings and read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        path.write_bytes(sample(name))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            try:
                change(connection)
            except (sqlite3.Error, OverflowError, UnicodeError):
                return
        check(path, pick)


TEXTS = st.sampled_from(
    ["", "x", "a\0b", "\x1b[2J\x1b]0;title\x07", "\r\n::error::x", "\u202e\u2066", "[" * 5000, "null", "[]", "{}", "1",
     "-1", '"\\ud800"', "Infinity", "NaN", "1e999", "9" * 5000, '{"a": ' * 900 + "1" + "}" * 900, "[[1, 2], {}]",
     "float32[2, 3]", '["float32[-1, 99999999999999999999]"]', '["x[", "int8[]"]', "aten::mm", "anymps::loader []",
     "anymps::loader {}", 'anymps::optimizer {"name": [], "tensors": {}}', "anymps::born 5", "anymps::hazard.MPS601 x",
     "anymps::copy.MPS999 x", "missing", "../../etc/passwd", "/", "C:\\x.py", "\\\\host\\share", "true", "]]>", "%s{0}"]
)  # fmt: skip
NUMBERS = st.sampled_from([0, 1, -1, 2, 7, 255, 256, 1 << 31, 1 << 40, 1 << 59, 1 << 62, (1 << 63) - 1, -(1 << 63)])
VALUES = st.one_of(
    TEXTS, NUMBERS, st.sampled_from([float("inf"), float("-inf"), 1.5, 1e300, None, b"", b"\xff\xfe", b"x" * 64])
)
LEAVES = st.sampled_from(
    [None, True, False, 0, -1, 1 << 70, 1.5, 1e308, "", "x", "\x1b[2J", "\0", "\ud800", "2.13.0", "M1 8GB", "9" * 5000]
)
INNER = LEAVES | st.lists(LEAVES, max_size=3)
OBJECTS = st.dictionaries(
    st.sampled_from(["name", "status", "exception", "message", "how", "x", "\x1b"]), INNER, max_size=3
)
JSON = INNER | OBJECTS | st.lists(OBJECTS, max_size=2)
COLUMNS = [(table, column.name) for table in TABLES for column in _columns(table)]
NAMES = st.sampled_from(sorted(SAMPLES))
FACTS = [
    "arguments", "complete", "directory", "ending", "environment", "fallback", "mac", "mac_details", "parts", "script",
    "source", "started", "suite", "torch_version", "virtual", "wall_seconds", "allocations_dropped", "process", "other",
    "core_speed", "compute_speed", "looks",
]  # fmt: skip


@PROFILE
@given(pick=PICKS, name=NAMES, column=st.sampled_from(COLUMNS), value=VALUES, row=st.integers(0, 40) | st.none())
def test_cells(pick: int, name: str, column: tuple[str, str], value: object, row: int | None) -> None:
    """Any value in any cell, or in all cells of a column."""
    table, cell = column
    where = "" if row is None else f"WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {row})"
    damaged(name, pick, lambda connection: connection.execute(f"UPDATE {table} SET {cell} = ? {where}", (value,)))


@PROFILE
@given(pick=PICKS, name=NAMES, key=st.sampled_from(FACTS), value=JSON)
def test_facts(pick: int, name: str, key: str, value: object) -> None:
    """Any JSON for any fact about the run."""
    text = json.dumps(value)
    damaged(name, pick, lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text)))


@PROFILE
@given(pick=PICKS, name=st.just("habits"),
       what=st.text("abcdefghijklmnopqrstuvwxyz_", max_size=12), key=st.text(max_size=9),
       value=JSON, place=st.integers(0, 200))  # fmt: skip
def test_notes(pick: int, name: str, what: str, key: str, value: object, place: int) -> None:
    """Any JSON in place of what a note of ours says, and any JSON for one of its facts."""

    def change(connection: sqlite3.Connection) -> None:
        rows = connection.execute("SELECT id, name FROM operators WHERE name LIKE 'anymps::% {%'").fetchall()
        number, text = rows[place % len(rows)]
        note, _, facts = text.partition(" ")
        said = json.loads(facts)
        if said and place % 3:
            said[sorted(said)[place % len(said)]] = value
        elif place % 2:
            said = value if key else {}
        else:
            note = f"anymps::{what}"
        connection.execute("UPDATE operators SET name = ? WHERE id = ?", (f"{note} {json.dumps(said)}", number))

    damaged(name, pick, change)


@PROFILE
@given(
    pick=PICKS,
    name=NAMES,
    value=JSON,
    key=st.sampled_from(["name", "expression", "caller", "event", "operator", "numpy_default"]),
)
def test_details(pick: int, name: str, value: object, key: str) -> None:
    """Any JSON for what is known of a refusal."""
    text = json.dumps({"operator": "aten::mm", key: value})
    damaged(name, pick, lambda connection: connection.execute("UPDATE refusals SET detail = ?", (text,)))


SCHEMES = [
    "CREATE VIEW extra AS SELECT * FROM entries", "CREATE TABLE extra (x)", "CREATE INDEX i ON entries (site)",
    "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM entries; END", "DROP TABLE {table}",
    "ALTER TABLE {table} ADD COLUMN extra TEXT", "ALTER TABLE {table} RENAME TO other",
    "CREATE VIRTUAL TABLE f USING fts5(x)", "DELETE FROM {table}", "DELETE FROM {table} WHERE rowid % 2",
    "UPDATE meta SET value = 'false' WHERE key = 'complete'", "DELETE FROM meta WHERE key = 'complete'",
    "INSERT INTO spool (chunk) VALUES (randomblob(64))", "INSERT INTO spool (chunk) VALUES (zeroblob(640))",
    "INSERT INTO allocation_spool (chunk) VALUES (randomblob(96))",
    "UPDATE meta SET value = '2.0' WHERE key LIKE 'sch%'",
    "UPDATE meta SET value = '99' WHERE key LIKE 'schema%'", "UPDATE meta SET value = '[' WHERE key LIKE 'schema%'",
    "ALTER TABLE meta RENAME TO m; CREATE VIEW meta AS SELECT * FROM m", "PRAGMA user_version = 7",
]  # fmt: skip


@PROFILE
@given(
    pick=PICKS, name=NAMES, scheme=st.sampled_from(SCHEMES), table=st.sampled_from(sorted(TABLES)), killed=st.booleans()
)
def test_tables(pick: int, name: str, scheme: str, table: str, killed: bool) -> None:
    """Tables that are missing, empty, half empty or too many, in recordings that ended and in those that did not."""

    def change(connection: sqlite3.Connection) -> None:
        connection.executescript(scheme.format(table=table))
        if killed:
            connection.execute("DELETE FROM meta WHERE key = 'complete'")

    damaged(name, pick, change)


@PROFILE
@given(pick=PICKS, name=NAMES, places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8),
       end=st.floats(0, 1) | st.just(1.0))  # fmt: skip
def test_bytes(pick: int, name: str, places: list[tuple[float, int]], end: float) -> None:
    """Bytes that were changed, and a file that was cut short."""
    content = bytearray(sample(name))
    for place, byte in places:
        content[int(place * (len(content) - 1))] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        path.write_bytes(content[: int(len(content) * end)])
        check(path, pick)


@functools.cache
def killed(name: str) -> tuple[bytes, bytes]:
    """One of the recordings as a run that was killed would leave it: its file and its journal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        path.write_bytes(sample(name))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("DELETE FROM meta WHERE key = 'complete'")
            connection.execute("UPDATE entries SET duration_ns = duration_ns + 1")
            return path.read_bytes(), path.with_name("run-wal").read_bytes()


@PROFILE
@given(pick=PICKS, name=NAMES, other=NAMES,
       places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
       in_journal=st.booleans(), end=st.floats(0, 1) | st.just(1.0))  # fmt: skip
def test_journals(
    pick: int, name: str, other: str, places: list[tuple[float, int]], in_journal: bool, end: float
) -> None:
    """The file and the journal of a killed run, of the same or of two, with bytes changed, the journal cut short."""
    contents = [bytearray(killed(name)[0]), bytearray(killed(other)[1])]
    for place, byte in places:
        changed = contents[in_journal]
        changed[int(place * (len(changed) - 1))] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        path.write_bytes(contents[0])
        path.with_name("run-wal").write_bytes(contents[1][: int(len(contents[1]) * end)])
        check(path, pick)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_half_read_is_left_in_silence(form: str, tmp_path: Path) -> None:
    """Damage that is found in the middle of a query is one line; Python has nothing to say of the query's end."""
    (path := tmp_path / "run").write_bytes(sample("training"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET signature = 4000 WHERE id IN (SELECT MAX(id) FROM entries)")
    status, _, err = run_command(["report", "--format", form, str(path)])
    assert (status, err) in (
        (0, ""),
        (2, f"anymps: {path} is damaged (no signature 4000): record again, or use an intact copy\n"),
    )


@pytest.mark.parametrize("column", ["site", "module", "thread", "step"])
def test_calls_that_belong_nowhere(column: str, tmp_path: Path) -> None:
    """A line or a module that the recording does not know is an unknown one."""
    (path := tmp_path / "run").write_bytes(sample("training"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE entries SET {column} = {column} + 4000 WHERE step = 1")
    for form in ("terminal", "html", "trace"):
        status, _, err = run_command(["report", "--format", form, str(path)])
        assert (status, err) == (0, "")


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    """SQLite quotes a malformed schema in its error, and Python cannot tell bytes that are no text."""
    (path := tmp_path / "run").write_bytes(
        sample("small").replace(b"CREATE TABLE entries (", b"CREATE TABLE \xff\xfentri (")
    )
    status, out, err = run_command(["report", str(path)])
    assert (status, out) == (2, "")
    assert err.startswith(f"anymps: {path} is damaged (")
    assert err.endswith("): record again, or use an intact copy\n")


def test_a_query_may_be_left_after_its_file_is_closed(tmp_path: Path) -> None:
    """Whoever has read some rows, closes the recording and forgets the rest is told nothing."""
    (path := tmp_path / "run").write_bytes(sample("training"))
    said: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, said.append
    try:
        with Recording.open(path) as recording:
            rows = recording.stream("SELECT * FROM entries")
            next(rows)
        del rows
    finally:
        sys.unraisablehook = hook
    assert said == []


DIRECTIONS = "\u202e\u2066\u200f\u2028\x85\x1b[2J\r\ta\0b"


@pytest.mark.parametrize("form", FORMATS)
def test_no_form_turns_the_direction_of_a_text(form: str, tmp_path: Path) -> None:
    """Names and source with characters that a terminal or a page obeys are shown with these written out."""
    (path := tmp_path / "run").write_bytes(sample("habits"))
    text = DIRECTIONS.replace("\0", "")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE sites SET file = file || ?, source = source || ?, function = ?", (text, text, text))
        connection.execute("UPDATE modules SET path = path || ? WHERE id > 0", (text,))
        connection.execute(
            "UPDATE meta SET value = ? WHERE key = 'script'", (json.dumps(f"/home/me/project/train{DIRECTIONS}.py"),)
        )
    status, out, err = run_command(["report", "--format", form, str(path)])
    assert (status, err) == (0, "")
    assert {character for character in out if not character.isprintable()} == {"\n"}


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would wait for a writer, a device has no end."""
    os.mkfifo(pipe := tmp_path / "pipe")
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(AnympsError, match="is not a regular file: give the file of a recording"):
            Recording.open(path)
        with pytest.raises(AnympsError, match="is not a baseline: make one with --write-baseline"):
            read_baseline(path)


def test_nothing_that_a_terminal_obeys_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files are shown with their control characters written out."""
    assert main(["report", str(tmp_path / "\x1b]0;title\x07\nx.anymps")]) == 2
    assert capsys.readouterr().err == (
        f"anymps: {tmp_path}/\\x1b]0;title\\x07\\nx.anymps does not exist: "
        "make a recording with `anymps run --record FILE script.py`\n"
    )
