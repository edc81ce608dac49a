"""The file of a recording: what survives a kill, and what is never overwritten."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from anymps._atomic import Staged
from anymps._errors import RecordingError
from anymps.record import Recording, RecordingBuilder, RecordingWriter, check_recordable
from processes import PATIENCE, clean_environment
from record.stored import ADD, kill, one_line_error, write


def test_closed_recording_is_complete_and_one_plain_file(tmp_path: Path) -> None:
    """A closed recording is one file without a journal, complete, with its packed entries turned into rows."""
    path = tmp_path / "run.anymps"
    write(path, meta={"script": "train.py", "virtual": True})
    assert [path] == list(tmp_path.iterdir())
    with Recording.open(path) as recording:
        assert recording.complete
        assert recording.meta == {"complete": True, "schema_version": 3, "script": "train.py", "virtual": True}
        assert recording.entry_count == 2
    with closing(sqlite3.connect(path)) as plain, plain:
        rows = plain.execute("SELECT id, start_ns, duration_ns, sequence, phase, site FROM entries").fetchall()
        spooled = plain.execute("SELECT COUNT(*) FROM spool").fetchone()
    plain.close()
    assert rows == [(1, 0, 4, -1, 3, 1), (2, 10, 4, -1, 3, 1)]
    assert spooled == (0,)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)"])
def test_killed_process_leaves_everything_committed(tmp_path: Path, end: str) -> None:
    """A process that is killed leaves an incomplete recording with all that was committed and nothing of the rest."""
    path = tmp_path / "run.anymps"
    program = f"""
import os, signal, sys
from anymps.record import RecordingBuilder, RecordingWriter
writer = RecordingWriter(sys.argv[1], {{"script": "train.py"}})
builder = RecordingBuilder(writer)
for number in range(300):
    builder.entry("{ADD}", start_ns=number * 10, duration_ns=5)
    if number == 149:
        builder.end_step(1500)
        builder.flush()
writer.spool(b"\\0" * 64 * 5000)
{end}
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], env=clean_environment(), timeout=PATIENCE, check=False
    )
    assert done.returncode in (-signal.SIGKILL, 3)
    with Recording.open(path) as recording:
        assert not recording.complete
        assert recording.entry_count == 150
        assert recording.complete_steps == 1
        assert recording.meta["script"] == "train.py"


def test_spooled_chunk_must_be_whole() -> None:
    """A chunk that is no multiple of 64 bytes is refused before it is stored."""
    writer = RecordingWriter.in_memory()
    with pytest.raises(RecordingError) as caught:
        writer.spool(b"\0" * 65)
    assert str(caught.value) == "packed entries come in multiples of 64 bytes, this chunk has 65"


def test_totals_replace_earlier_totals() -> None:
    """Totals are cumulative: the last ones written for a key are the ones that count."""
    writer = RecordingWriter.in_memory()
    writer.add("operators", [(1, ADD)])
    writer.add("signatures", [(1, 1, 0, "[]", "[]", "{}")])
    writer.add("totals", [(1, 0, 0, 3, 0, 0, 10, 100, 0)])
    writer.commit()
    writer.add("totals", [(1, 0, 0, 3, 0, 0, 25, 250, 0)])
    writer.close()
    assert [(use.name, use.count, use.duration_ns) for use in writer.recording().operators()] == [(ADD, 25, 250)]


def test_threads_may_write_through_one_writer(tmp_path: Path) -> None:
    """Chunks spooled from several threads all arrive."""
    writer = RecordingWriter(tmp_path / "run.anymps", {})

    def spool() -> None:
        for _ in range(20):
            writer.spool(b"\0" * 64)
            writer.commit()

    threads = [threading.Thread(target=spool) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert recording.entry_count == 80


def test_forked_child_leaves_the_recording_alone(tmp_path: Path) -> None:
    """Writing and closing in a forked child do nothing; the parent's recording ends as the parent ends it."""
    path = tmp_path / "run.anymps"
    program = f"""
import os, sys
from anymps.record import RecordingBuilder, RecordingWriter
writer = RecordingWriter(sys.argv[1], {{}})
builder = RecordingBuilder(writer)
builder.entry("{ADD}", start_ns=0)
builder.flush()
child = os.fork()
if child == 0:
    for number in range(5):
        builder.entry("{ADD}", start_ns=number)
    builder.flush()
    writer.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
builder.entry("{ADD}", start_ns=1)
builder.flush()
writer.close()
"""
    subprocess.run([sys.executable, "-c", program, str(path)], env=clean_environment(), timeout=PATIENCE, check=True)
    with Recording.open(path) as recording:
        assert (recording.complete, recording.entry_count) == (True, 2)


def test_closed_writer_refuses_more(tmp_path: Path) -> None:
    """Writing after `close` is a clear error, closing again is none."""
    path = tmp_path / "run.anymps"
    writer = RecordingWriter(path, {})
    writer.close()
    writer.close()
    with pytest.raises(RecordingError) as caught:
        writer.spool(b"\0" * 64)
    assert str(caught.value) == f"{path} was closed: nothing more can be written to it"


def test_meta_of_the_format_cannot_be_set() -> None:
    """The two facts that the format itself keeps are not the caller's to set."""
    with pytest.raises(RecordingError) as caught:
        RecordingWriter.in_memory({"complete": True})
    assert str(caught.value) == "meta 'complete' belongs to the file format and cannot be set"


def test_older_recording_stays_if_the_new_one_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older recording is untouched, and nothing is left beside it, when the new file cannot take its place."""
    path = tmp_path / "run.anymps"
    write(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RecordingError) as caught:
        RecordingWriter(path, {})
    assert str(caught.value) == f"{path} cannot be written: No space left on device"
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


def test_killed_recording_that_is_being_read_is_not_replaced(tmp_path: Path) -> None:
    """A killed recording whose journal another program reads is left alone: the journal would spoil the new file."""
    path = kill(tmp_path)
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT COUNT(*) FROM spool").fetchone() == (1,)
    with pytest.raises(RecordingError) as caught:
        RecordingWriter(path, {})
    assert str(caught.value) == f"{path} is in use by another process: record into another file"
    reader.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"epoch,loss\n1,0.5\n", "is not a recording"),
        ("database", "is another program's SQLite file"),
    ],
)
def test_other_files_are_never_overwritten(tmp_path: Path, content: bytes | str, reason: str) -> None:
    """A file that is no recording is left as it is and named in the error; reading it says the same."""
    path = tmp_path / "results.csv"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE meta (key, value)")
        other.close()
    before = path.read_bytes()
    with pytest.raises(RecordingError) as caught:
        RecordingWriter(path, {})
    assert str(caught.value) == f"{path} {reason}, so it will not be overwritten: name another file"
    assert path.read_bytes() == before
    assert one_line_error(path) == f"{path} {reason}: give a file that `anymps run --record` made"


def test_empty_file_may_be_recorded_into(tmp_path: Path) -> None:
    """A file without content, as `mktemp` makes it, is a fine place; reading it before that is an error."""
    path = tmp_path / "run.anymps"
    path.touch()
    assert one_line_error(path) == f"{path} is empty: give a file that `anymps run --record` made"
    write(path)
    Recording.open(path).close()


def test_place_must_be_a_file_in_a_directory(tmp_path: Path) -> None:
    """A directory, a missing directory and a device are refused as places to record into."""
    nowhere = tmp_path / "no"
    cases = {
        tmp_path: f"{tmp_path} is a directory: give the name of a file to record into",
        nowhere / "run": f"{nowhere / 'run'} cannot be written: there is no directory {nowhere}",
        Path(os.devnull): f"{os.devnull} is not a regular file: give the name of a file to record into",
    }
    for path, text in cases.items():
        with pytest.raises(RecordingError) as caught:
            RecordingWriter(path, {})
        assert str(caught.value) == text


def test_link_to_a_recording_stays_a_link(tmp_path: Path) -> None:
    """Recording through a symbolic link fills the file that it points to."""
    target, link = tmp_path / "target", tmp_path / "link"
    write(target)
    link.symlink_to(target)
    write(link, entries=5)
    assert link.is_symlink()
    with Recording.open(target) as recording:
        assert recording.entry_count == 5


def test_missing_file_and_directory_are_refused(tmp_path: Path) -> None:
    """What is not there, or is a directory, is named with what to do."""
    missing = tmp_path / "none"
    assert (
        one_line_error(missing)
        == f"{missing} does not exist: make a recording with `anymps run --record FILE script.py`"
    )
    assert one_line_error(tmp_path) == f"{tmp_path} is a directory, not a recording: give the file inside it"


def test_closed_recording_says_so(tmp_path: Path) -> None:
    """Asking a closed recording is a clear error."""
    path = tmp_path / "run.anymps"
    write(path)
    recording = Recording.open(path)
    recording.close()
    with pytest.raises(RecordingError) as caught:
        recording.lines()
    assert str(caught.value) == f"{path} was closed: open it again to read it"


def test_names_that_are_no_text_are_kept_in_escapes() -> None:
    """A file system may hold names in no encoding; Python shows them with surrogates, which SQLite cannot store."""
    builder = RecordingBuilder()
    builder.entry("aten::mm", start_ns=0, site=builder.site("/p/caf\udce9.py", 3, "main", "x = 1"))
    (line,) = builder.close().lines()
    assert line.file == "/p/caf\\udce9.py"


def test_recordings_that_nobody_closes_are_closed_by_the_collector() -> None:
    """In a circle, too, and without the warning that SQLite's connections give since Python 3.13."""
    writer = RecordingWriter.in_memory()
    recording = writer.recording()
    connections = [writer._connection, recording._file._connection]
    circle: list[object] = [writer, recording]
    circle.append(circle)
    del writer, recording, circle
    gc.collect()
    for connection in connections:
        with pytest.raises(sqlite3.ProgrammingError, match="Cannot operate on a closed database"):
            connection.execute("SELECT 1")


def test_places_that_a_recording_can_take(tmp_path: Path) -> None:
    """A new name, an empty file, a recording that nobody writes, a link to one; nothing is changed."""
    (tmp_path / "empty").touch()
    RecordingWriter(tmp_path / "older.anymps", {}).close()
    (tmp_path / "link").symlink_to("older.anymps")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("new.anymps", "empty", "older.anymps", "link"):
        check_recordable(tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_disk_that_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no mode tells, such as a disk that is read-only, is found by making the file."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Staged, "__init__", refuse)
    path = tmp_path / "run.anymps"
    with pytest.raises(RecordingError) as caught:
        check_recordable(path)
    assert str(caught.value) == f"{path} cannot be written: Read-only file system"
