"""A recording that is damaged, or of another version, is refused in one line."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from anymps._errors import AnympsError, RecordingError
from anymps._settings import FORMATS
from anymps.commands import main
from anymps.findings import read_baseline
from anymps.record import Form, Recording, RecordingBuilder
from fuzz.recorded import habits, seeds
from fuzz.worker import run
from record.stored import ADD, one_line_error, write
from recordings import bytes_of, small


def changed(folder: Path, statement: str, *values: object, close: bool = True) -> Path:
    """A small recording in which something is changed."""
    path = folder / "run.anymps"
    write(path, meta={"script": "train.py"}, close=close)
    with closing(sqlite3.connect(path)) as plain, plain:
        plain.execute(statement, values)
    return path


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            "123456789",
            "has recording schema 123456789, this anymps reads 3: record again, or read it with the anymps that made "
            "it",
        ),
        ("1234567890", "is damaged (its schema has no number): record again"),
        ("three", "is damaged (its schema has no number): record again"),
        ("-1", "is damaged (its schema has no number): record again"),
    ],
)
def test_a_schema_version_is_a_number(tmp_path: Path, version: str, said: str) -> None:
    """A version yet to come is named; what is none, or has more than nine digits, is damage."""
    path = changed(tmp_path, "UPDATE meta SET value = ? WHERE key = 'schema_version'", version)
    assert said in one_line_error(path)


def test_forms_are_read_as_they_are_written() -> None:
    """The layout of the first inputs, axes, and the numbers of a convolution."""
    form = {"axes": [0, 2], "dilation": [1, 1], "groups": [2], "layout": ["transposed", "other"], "stride": [2, 1]}
    builder = RecordingBuilder()
    builder.entry(ADD, start_ns=0, form=form, delayed_us=7)
    builder.entry(ADD, start_ns=10)
    recording = builder.close()
    assert recording.signature(1).form == Form(("transposed", "other"), (0, 2), (2, 1), (1, 1), (2,))
    assert recording.signature(2).form == Form()
    assert list(recording.stream("SELECT delayed_us FROM entries")) == [(7,), (0,)]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ('{"layout": ["upside down"]}', "the form of a call is invalid"),
        ('{"axes": [1.5]}', "the form of a call is invalid"),
        ("[]", "a detail is not a JSON object"),
    ],
)
def test_a_form_that_makes_no_sense(tmp_path: Path, form: str, reason: str) -> None:
    """It is refused where it is asked for."""
    path = changed(tmp_path, "UPDATE signatures SET form = ?", form)
    with Recording.open(path) as recording, pytest.raises(RecordingError) as caught:
        recording.signature(1)
    assert str(caught.value) == f"{path} is damaged ({reason}): record again, or use an intact copy"


@pytest.mark.parametrize("keep", [100, 5000, 0.5, 0.95])
def test_file_cut_short_is_refused(tmp_path: Path, keep: float) -> None:
    """A recording that lost its end is refused, wherever the cut is."""
    path = tmp_path / "run.anymps"
    write(path, entries=5000)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep if keep > 1 else keep * len(content))])
    text = one_line_error(path)
    assert text.startswith(f"{path} is damaged (")
    assert text.endswith("): record again, or use an intact copy")


def test_damage_is_told_without_its_heading(tmp_path: Path) -> None:
    """SQLite puts the name of the database on a line before what it found: that line says nothing."""
    path = tmp_path / "run.anymps"
    write(path, entries=5000)
    with closing(sqlite3.connect(path)) as plain:
        (root,) = plain.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries'").fetchone()
        (size,) = plain.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[(root - 1) * size + 12 : (root - 1) * size + 14] = b"\xff\xff"  # where its first cell lies
    path.write_bytes(content)
    text = one_line_error(path)
    assert text.startswith(f"{path} is damaged (")
    assert "***" not in text
    assert f"page {root}" in text.lower()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE meta SET value = '{' WHERE key = 'script'", "Expecting property name enclosed in double quotes"),
        ("DROP TABLE steps", "no table steps"),
        ("CREATE VIEW extra AS SELECT 1", "a view that no recording has"),
        ("CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT 1; END", "a trigger that no recording has"),
        ("ALTER TABLE steps ADD COLUMN extra TEXT", "table steps has other columns"),
        ("UPDATE sites SET file = 'a' || char(0) || 'b'", "sites.file holds an impossible value"),
        ("UPDATE sites SET line = 'three'", "sites.line holds an impossible value"),
        ("UPDATE entries SET start_ns = 9e999", "entries.start_ns holds an impossible value"),
        ("UPDATE entries SET wait = 77", "entries.wait holds an impossible value"),
        ("UPDATE sites SET first = -1", "sites.first holds an impossible value"),
        ("UPDATE entries SET flags = 4096", "entries.flags holds an impossible value"),
        ("UPDATE steps SET end_ns = start_ns - 1", "a step ends before it starts"),
        ("UPDATE meta SET value = '[1]' WHERE key = 'script'", "meta 'script' is invalid"),
        ("UPDATE meta SET value = 'Infinity' WHERE key = 'script'", "Infinity is not a finite number"),
        (
            "UPDATE meta SET value = printf('%.*c', 999, '[') || printf('%.*c', 999, ']') WHERE key = 'script'",
            "JSON that is nested too deep",
        ),
    ],
)
def test_what_no_recording_holds_is_refused(tmp_path: Path, change: str, reason: str) -> None:
    """Tables, types and ranges are those of the format, or the file is refused in one line."""
    path = changed(tmp_path, change)
    assert f"{path} is damaged ({reason}" in one_line_error(path)


def test_a_chunk_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    """What a run that did not end left packed is checked when it is opened."""
    path = changed(tmp_path, "INSERT INTO spool (chunk) VALUES (x'00')", close=False)
    assert "packed entries come in multiples of 64 bytes, this chunk has 1" in one_line_error(path)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_half_read_is_left_in_silence(form: str, tmp_path: Path) -> None:
    """Damage that is found in the middle of a query is one line; Python has nothing to say of the query's end."""
    (path := tmp_path / "run").write_bytes(seeds()[0])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET signature = 4000 WHERE id IN (SELECT MAX(id) FROM entries)")
    status, _, err = run(["report", "--format", form, str(path)])
    assert (status, err) in (
        (0, ""),
        (2, f"anymps: {path} is damaged (no signature 4000): record again, or use an intact copy\n"),
    )


@pytest.mark.parametrize("column", ["site", "module", "thread", "step"])
def test_calls_that_belong_nowhere(column: str, tmp_path: Path) -> None:
    """A line or a module that the recording does not know is an unknown one."""
    (path := tmp_path / "run").write_bytes(seeds()[0])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE entries SET {column} = {column} + 4000 WHERE step = 1")
    for form in ("terminal", "html"):
        status, _, err = run(["report", "--format", form, str(path)])
        assert (status, err) == (0, "")


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    """SQLite quotes a malformed schema in its error, and Python cannot tell bytes that are no text."""
    (path := tmp_path / "run").write_bytes(
        bytes_of(small()).replace(b"CREATE TABLE entries (", b"CREATE TABLE \xff\xfentri (")
    )
    status, out, err = run(["report", str(path)])
    assert (status, out) == (2, "")
    assert err.startswith(f"anymps: {path} is damaged (")
    assert err.endswith("): record again, or use an intact copy\n")


def test_a_query_may_be_left_after_its_file_is_closed(tmp_path: Path) -> None:
    """Whoever has read some rows, closes the recording and forgets the rest is told nothing."""
    (path := tmp_path / "run").write_bytes(seeds()[0])
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
    (path := tmp_path / "run").write_bytes(bytes_of(habits()))
    text = DIRECTIONS.replace("\0", "")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE sites SET file = file || ?, source = source || ?, function = ?", (text, text, text))
        connection.execute("UPDATE modules SET path = path || ? WHERE id > 0", (text,))
        connection.execute(
            "UPDATE meta SET value = ? WHERE key = 'script'", (json.dumps(f"/home/me/project/train{DIRECTIONS}.py"),)
        )
    status, out, err = run(["report", "--format", form, str(path)])
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
