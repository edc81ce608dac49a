"""A recording that is damaged, or of another version, is refused in one line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anymps._errors import RecordingError
from anymps.record import Form, Recording, RecordingBuilder
from record.stored import ADD, one_line_error, write


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
    path = tmp_path / "run.anymps"
    write(path)
    with closing(sqlite3.connect(path)) as plain, plain:
        plain.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (version,))
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
    path = tmp_path / "run.anymps"
    write(path)
    with closing(sqlite3.connect(path)) as plain, plain:
        plain.execute("UPDATE signatures SET form = ?", (form,))
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


def test_overwritten_pages_are_refused(tmp_path: Path) -> None:
    """A recording with foreign bytes inside is refused."""
    path = tmp_path / "run.anymps"
    write(path, entries=5000)
    content = bytearray(path.read_bytes())
    first, last = len(content) // 5, len(content) * 4 // 5
    content[first:last] = b"\xa5" * (last - first)
    path.write_bytes(content)
    assert one_line_error(path).startswith(f"{path} is damaged (")


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
        ("INSERT INTO spool (chunk) VALUES (x'00')", "packed entries come in multiples of 64 bytes, this chunk has 1"),
    ],
)
def test_wrong_content_is_refused(tmp_path: Path, change: str, reason: str) -> None:
    """Content that breaks the format is refused when the file is opened."""
    path = tmp_path / "run.anymps"
    write(path, meta={"script": "train.py"}, close=False)
    plain = sqlite3.connect(path)
    plain.execute(change)
    plain.commit()
    plain.close()
    assert reason in one_line_error(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("CREATE VIEW extra AS SELECT 1", "a view that no recording has"),
        ("CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT 1; END", "a trigger that no recording has"),
        ("ALTER TABLE steps ADD COLUMN extra TEXT", "table steps has other columns"),
        ("UPDATE sites SET file = 'a' || char(0) || 'b'", "sites.file holds an impossible value"),
        ("UPDATE sites SET line = 'three'", "sites.line holds an impossible value"),
        ("UPDATE entries SET start_ns = 9e999", "entries.start_ns holds an impossible value"),
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
    path = tmp_path / "run.anymps"
    write(path, meta={"script": "train.py"})
    with closing(sqlite3.connect(path)) as plain:
        plain.execute(change)
        plain.commit()
    assert f"{path} is damaged ({reason}" in one_line_error(path)


def test_unknown_word_is_refused(tmp_path: Path) -> None:
    """A number outside a vocabulary is damage, not a crash."""
    path = tmp_path / "run.anymps"
    write(path)
    plain = sqlite3.connect(path)
    plain.execute("UPDATE entries SET wait = 77")
    plain.commit()
    plain.close()
    assert one_line_error(path) == (
        f"{path} is damaged (entries.wait holds an impossible value): record again, or use an intact copy"
    )
