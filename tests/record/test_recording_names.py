"""A recording owns its name: no other run's journal gets into it, whoever was killed, moved or taken away before."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from anymps._errors import RecordingError
from anymps.record import Recording, RecordingWriter, join_into, move_recording, remove_recording
from processes import PATIENCE, clean_environment
from record.stored import MUL, begin, beside, kill, told

BESIDE = ("-wal", "-shm", "-journal")


@pytest.mark.parametrize("kept", [BESIDE, ("-wal",), ("-shm",)])
def test_nothing_comes_back_of_a_run_whose_file_was_removed(tmp_path: Path, kept: tuple[str, ...]) -> None:
    """The journal of a killed run stays where its file was; a new recording of that name holds the new run alone."""
    path = kill(tmp_path)
    path.unlink()
    for ending in BESIDE:
        if ending not in kept:
            path.with_name(path.name + ending).unlink(missing_ok=True)
    builder = begin(path, "new.py", 3, MUL)
    assert told(path) == ("new.py", 3, False)
    with builder.close() as recording:
        assert [(use.name, use.count) for use in recording.operators()] == [(MUL, 3)]
    assert told(path) == ("new.py", 3, True)
    assert beside(path) == []


def test_a_rollback_journal_is_not_taken_either(tmp_path: Path) -> None:
    """What SQLite would roll back into a new file of that name is the content of another one."""
    path = tmp_path / "w.anymps"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("PRAGMA cache_spill = 1")
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES ('y')")
        other.execute("PRAGMA cache_size = 1")
        other.executemany("INSERT INTO t VALUES (?)", [("x" * 4000,)] * 50)
        journal = path.with_name("w.anymps-journal").read_bytes()
        other.execute("ROLLBACK")
    path.unlink()
    path.with_name("w.anymps-journal").write_bytes(journal)
    begin(path, "new.py", 3).close().close()
    assert told(path) == ("new.py", 3, True)
    path.with_name("w.anymps-journal").write_bytes(journal)
    assert told(path) == ("new.py", 3, True)
    begin(path, "newer.py", 4).close().close()
    assert told(path) == ("newer.py", 4, True)


@pytest.mark.parametrize("closed", [True, False])
def test_a_foreign_journal_is_not_read(tmp_path: Path, closed: bool) -> None:
    """A recording that is put where a killed run's journal lies is read without it."""
    path = kill(tmp_path)
    other = tmp_path / "other.anymps"
    builder = begin(other, "other.py", 7)
    if closed:
        builder.close().close()
        shutil.copyfile(other, path)
        expected = ("other.py", 7, True)
    else:
        shutil.copyfile(other, path)
        expected = ("other.py", 0, False)  # its own journal is not there
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert told(path) == expected
    assert before == {file.name: file.read_bytes() for file in path.parent.iterdir()}
    begin(path, "new.py", 3).close().close()
    assert told(path) == ("new.py", 3, True)
    assert beside(path) == []


def test_a_copy_without_its_journal_is_an_incomplete_recording(tmp_path: Path) -> None:
    """The file alone says whose run it is and that it stops in the middle, also where nothing may be written."""
    path = kill(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copyfile(path, alone / "w.anymps")
    (alone / "w.anymps").chmod(0o400)
    alone.chmod(0o500)
    assert told(alone / "w.anymps") == ("old.py", 0, False)
    assert os.listdir(alone) == ["w.anymps"]


@pytest.mark.parametrize("with_shm", [True, False])
def test_reading_leaves_nothing_beside_a_killed_recording(tmp_path: Path, with_shm: bool) -> None:
    """SQLite's own lock file is neither made nor touched, and the folder may be read-only."""
    path = kill(tmp_path)
    if not with_shm:
        path.with_name("w.anymps-shm").unlink()
    path.parent.chmod(0o500)
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.parent.iterdir()}
    assert told(path) == ("old.py", 5000, False)
    assert before == {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.parent.iterdir()}


def test_reading_never_holds_up_the_end_of_the_run(tmp_path: Path) -> None:
    """Whoever reads while the run ends reads a copy: the recording still becomes one plain file."""
    path = tmp_path / "w.anymps"
    program = """
import sys
from anymps.record import Recording
recording = Recording.open(sys.argv[1])
print("open", flush=True)
input()
"""
    builder = begin(path, "train.py", 3)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], env=clean_environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as reader:  # fmt: skip
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        builder.close().close()
        assert beside(path) == []
        reader.communicate("\n", timeout=PATIENCE)
    assert reader.returncode == 0
    assert told(path) == ("train.py", 3, True)


def test_reading_one_s_own_recording_keeps_its_locks(tmp_path: Path) -> None:
    """A process that reads what it records does not let go of SQLite's locks on it (sqlite.org/howtocorrupt.html)."""
    path = tmp_path / "w.anymps"
    builder = begin(path, "train.py", 3)
    assert told(path) == ("train.py", 3, False)
    with pytest.raises(RecordingError):
        RecordingWriter(path, {})
    program = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], timeout=0)
print(other.execute("SELECT COUNT(*) FROM spool").fetchone()[0])
other.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == "1\n"
    assert beside(path) == ["w.anymps-shm", "w.anymps-wal"]  # the last one to close takes them away
    builder.close().close()
    assert told(path) == ("train.py", 3, True)


@pytest.mark.parametrize("moved", [True, False])
def test_a_run_whose_file_was_taken_away_puts_it_back(tmp_path: Path, moved: bool) -> None:
    """What a run has recorded is at its place when it ends, whatever became of the file meanwhile."""
    path = tmp_path / "w.anymps"
    builder = begin(path, "train.py", 3)
    path.rename(tmp_path / "away") if moved else path.unlink()
    builder.close().close()
    assert told(path) == ("train.py", 3, True)
    assert beside(path) == (["away"] if moved else [])


def test_a_run_leaves_the_file_of_a_later_one_alone(tmp_path: Path) -> None:
    """A run whose file was removed ends without a trace in that of the run that has taken its name."""
    path = tmp_path / "w.anymps"
    first = begin(path, "first.py", 3)
    path.unlink()
    second = begin(path, "second.py", 4)
    with pytest.raises(RecordingError) as caught:
        first.close()
    assert (
        str(caught.value) == f"{path} belongs to another run by now: the file that this run was recorded into is gone"
    )
    assert told(path) == ("second.py", 4, False)
    with first._writer.recording() as recording:
        assert (recording.meta["script"], recording.entry_count, recording.complete) == ("first.py", 3, True)
    del first
    assert told(path) == ("second.py", 4, False)
    assert path.with_name("w.anymps-wal").exists()
    second.close().close()
    assert told(path) == ("second.py", 4, True)
    assert beside(path) == []


KILLED_EARLY = """
import os, signal, sys, threading
from anymps.record import RecordingWriter
import sqlite3
events = iter(range(10**9))
last = int(sys.argv[2])

def stop(*_):
    if next(events) == last:
        os.kill(os.getpid(), signal.SIGKILL)

sys.settrace(lambda frame, event, argument: (stop(), stop_lines)[1] if "anymps" in frame.f_code.co_filename else None)
def stop_lines(frame, event, argument):
    stop()
    return stop_lines
writer = RecordingWriter(sys.argv[1], {"script": "train.py", "virtual": True})
sys.settrace(None)
print("begun", flush=True)
"""


def test_a_file_is_whole_from_its_first_moment(tmp_path: Path) -> None:
    """Killed at any line while the recording begins, there is no file yet, or one that says what it is of."""
    path = tmp_path / "w.anymps"
    found = set()
    children = []
    for last in range(0, 400, 20):
        pid = os.fork()
        if not pid:
            sys.argv = ["", str(path.with_name(f"{last}.anymps")), str(last)]
            with open(os.devnull, "w") as sys.stdout:
                exec(compile(KILLED_EARLY, "early", "exec"), {})
                sys.stdout.flush()
            os._exit(7)
        children.append((last, pid))
    for last, pid in children:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        file = path.with_name(f"{last}.anymps")
        if status == 7:
            assert told(file) == ("train.py", 0, False)
            continue
        assert status == -signal.SIGKILL
        found.add(file.exists())
        if file.exists():
            assert told(file) == ("train.py", 0, False)
            begin(file, "new.py", 1).close().close()
            assert told(file) == ("new.py", 1, True)
    assert found == {True, False}


def test_two_that_begin_at_once(tmp_path: Path) -> None:
    """Of many that take a name at the same time one has it, and the others are told so."""
    path = tmp_path / "w.anymps"
    program = """
import sys
from anymps._errors import RecordingError
from anymps.record import RecordingBuilder, RecordingWriter
print("ready", flush=True)
input()
try:
    writer = RecordingWriter(sys.argv[1], {"script": sys.argv[2]})
except RecordingError as error:
    print(error, flush=True)
else:
    builder = RecordingBuilder(writer)
    builder.entry("aten::mm", start_ns=0)
    builder.flush()
    print("has it", flush=True)
    input()
    builder.close().close()
"""
    command = [sys.executable, "-c", program, str(path)]
    runs = [
        subprocess.Popen(
            [*command, str(number)], env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    pipes = [(run.stdin, run.stdout) for run in runs]
    answers = []
    assert all(out is not None and out.readline() == "ready\n" for _, out in pipes)
    for stdin, _ in pipes:
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()
    for _, out in pipes:
        assert out is not None
        answers.append(out.readline().strip())
    for run in runs:
        run.communicate("\n", timeout=PATIENCE)
    assert sorted(answers) == sorted(
        ["has it"] + [f"{path} is in use by another process: record into another file"] * 3
    )
    assert told(path) == (str(answers.index("has it")), 1, True)
    assert beside(path) == []


def test_moving_takes_the_journal_along(tmp_path: Path) -> None:
    """A recording that was cut short stays whole when it is given another name, and the name is its own."""
    path = kill(tmp_path)
    (second := tmp_path / "second").mkdir()
    target = kill(second, "older.py", 9)
    move_recording(path, target)
    assert told(target) == ("old.py", 5000, False)
    assert beside(path) == []
    begin(path, "new.py", 2).close().close()
    move_recording(path, target)
    assert told(target) == ("new.py", 2, True)
    assert beside(target) == []


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    """A recording that is taken away leaves no journal; one that is not there is no error."""
    path = kill(tmp_path)
    remove_recording(path)
    assert not path.exists()
    assert beside(path) == []
    remove_recording(path)


def test_joining_replaces_no_other_file(tmp_path: Path) -> None:
    """A joined recording takes a name as a new one does: not that of another file, nor of a recording in use."""
    part = tmp_path / "part"
    with begin(part, "train.py", 3).close() as recording:
        (notes := tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(RecordingError, match=r"is not a recording, so it will not be overwritten"):
            join_into([("one", recording)], notes)
        assert notes.read_text() == "mine"
        running = begin(tmp_path / "w.anymps", "running.py", 4)
        with pytest.raises(RecordingError, match="is in use by another process: record into another file"):
            join_into([("one", recording)], tmp_path / "w.anymps")
        running.close().close()
        assert told(tmp_path / "w.anymps") == ("running.py", 4, True)
        dead = kill(tmp_path)
        join_into([("one", recording)], dead).close()
    assert told(dead) == ("train.py", 3, True)
    assert beside(dead) == []


def test_a_file_that_is_read_only_is_not_replaced(tmp_path: Path) -> None:
    """Its user made it so, and a new file in its place would be one all the same; empty or a recording."""
    empty = tmp_path / "empty"
    empty.touch(0o444)
    with pytest.raises(RecordingError) as caught:
        begin(empty, "new.py", 1)
    assert str(caught.value) == f"{empty} cannot be written: it is read-only (chmod u+w {empty})"
    path = tmp_path / "w.anymps"
    with begin(path, "train.py", 3).close() as recording:
        path.chmod(0o444)
        line = f"{path} cannot be written: it is read-only (chmod u+w {path})"
        with pytest.raises(RecordingError) as caught:
            begin(path, "new.py", 1)
        assert str(caught.value) == line
        other = tmp_path / "other"
        begin(other, "other.py", 1).close().close()
        with Recording.open(other) as part, pytest.raises(RecordingError) as caught:
            join_into([("one", part)], path)
        assert str(caught.value) == line
        assert recording.entry_count == 3
    assert told(path) == ("train.py", 3, True)


def test_a_journal_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would wait for a writer, a device has no end, and a journal of zeros holds nothing."""
    path = kill(tmp_path)
    journal = path.with_name("w.anymps-wal")
    journal.unlink()
    os.mkfifo(journal)
    assert told(path) == ("old.py", 0, False)
    journal.unlink()
    journal.symlink_to("/dev/zero")
    assert told(path) == ("old.py", 0, False)
    journal.unlink()
    with journal.open("wb") as file:
        file.truncate(1 << 40)
    assert told(path) == ("old.py", 0, False)


def test_a_full_disk_for_the_copy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed recording is read by way of a copy; where there is no room for one, that is said."""
    path = kill(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(RecordingError) as caught:
        Recording.open(path)
    assert str(caught.value) == (
        f"{path} cannot be read: its run did not end, so it is read from a copy, and none can be made "
        "(No space left on device): set TMPDIR to a folder with room for it"
    )
    assert stat.S_ISREG(path.stat().st_mode)
