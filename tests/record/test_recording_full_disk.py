"""A recording whose file takes no more, as on a full disk, or is closed: it ends in one line, and the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import anymps
from anymps.capture._recorder import Capture
from anymps.capture._suite import SuiteCapture
from anymps.commands._recordings import keep_as_last, last_recording, place_of_run
from anymps.record import Recording, RecordingBuilder, RecordingWriter
from gate import Gate, gate, loaded, section
from processes import MAC, Result, run_command

pytestmark = pytest.mark.usefixtures("virtual_device")
__all__ = ["gate", "loaded"]  # fixtures
pytest_plugins = ["pytester"]

FULL = "cannot be written: database or disk is full"
SOURCES = pytest.mark.parametrize("source", ["native", "observer"])


def fill_disk(capture: Capture) -> None:
    """From now on there is room for a few pages more: SQLite then says what it says of a full disk."""
    writer: Any = capture._writer
    (pages,) = writer._connection.execute("PRAGMA page_count").fetchone()
    writer._connection.execute(f"PRAGMA max_page_count = {pages + 4}")


def work(calls: int) -> None:
    """Calls on the device, 64 bytes each in the recording."""
    x = torch.ones(4, device="mps")
    for _ in range(calls):
        x = x + 1


@SOURCES
def test_the_run_goes_on(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line when it happens, none later, and what was committed before can be read."""
    path = tmp_path / "run.anymps"
    with anymps.record(path, source=source) as capture:
        work(20)
        capture.flush()
        fill_disk(capture)
        for _ in range(3):
            work(2000)
            capture.flush()
        assert str(capture.failure) == f"{path} {FULL}"
        assert capsys.readouterr().err == (
            f"anymps: recording stopped: {path} {FULL}. The run continues; what was recorded before can be read.\n"
        )
        work(2000)
    assert capsys.readouterr().err == ""
    with Recording.open(path) as recording:
        assert not recording.complete
        assert [use.count for use in recording.operators() if use.name == "aten::add.Tensor"] == [20]


def test_nothing_piles_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the end of the recording the tape holds nothing between two flushes, and plain calls are not written."""
    with anymps.record(tmp_path / "run.anymps") as capture:
        fill_disk(capture)
        work(2000)
        capture.flush()
        assert capture.failure is not None
        work(2000)
        entries, *_ = capture.core.tape_drain(0)
        assert len(entries) <= 64 * 10
    assert capsys.readouterr().err.count("\n") == 1


def test_a_disk_that_is_full_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ending a recording takes room too."""
    path = tmp_path / "run.anymps"
    with anymps.record(path) as capture:
        work(2000)
        capture.flush()
        fill_disk(capture)
        work(3000)
    assert capsys.readouterr().err == (
        f"anymps: recording stopped: {path} {FULL}. What was recorded before can be read.\n"
    )
    recording = capture.recording
    assert not recording.complete
    assert [use.count for use in recording.operators() if use.name == "aten::add.Tensor"] == [2000]


def test_sections_of_a_suite_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate judges by what the tape says, not by the file."""
    with SuiteCapture(tmp_path / "run.anymps") as capture:
        fill_disk(capture)
        work(2000)
        torch.ones(1, device="mps").item()
        first = capture.cut()
        assert capture.failure is not None
        torch.ones(1, device="mps").item()
        second = capture.cut()
    assert [sum(section.waits.values()) for section in (first, second)] == [1, 1]
    assert first.calls > 2000
    assert capsys.readouterr().err == ""


def test_a_writer_that_was_given_up(tmp_path: Path) -> None:
    """It takes everything and keeps nothing; only what was committed is in the file."""
    path = tmp_path / "run.anymps"
    writer = RecordingWriter(path, {"script": "train.py"})
    builder = RecordingBuilder(writer)
    builder.entry("aten::mul.Tensor", start_ns=0)
    builder.flush()
    builder.entry("aten::add.Tensor", start_ns=10)
    writer.abandon()
    builder.flush()
    writer.close()
    writer.abandon()
    recording = writer.recording()
    assert [use.name for use in recording.operators()] == ["aten::mul.Tensor"]
    assert not recording.complete


def test_the_last_run_is_whole_beside_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that was cut short may have its newest pages beside it; they move with it, and never stay behind."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    for number, writing in ((1, True), (2, False)):
        path = place_of_run()
        assert path is not None
        builder = RecordingBuilder(RecordingWriter(path, {"script": f"{number}.py"}))
        builder.entry("aten::mm", start_ns=0)
        builder.flush()
        kept = [(file, file.read_bytes()) for file in path.parent.glob(f"{path.name}*")]
        builder.close().close()
        if writing:  # as after a kill
            for file, content in kept:
                file.write_bytes(content)
        assert keep_as_last(path)
        with Recording.open(last_recording()) as recording:
            assert (recording.meta["script"], recording.entry_count) == (f"{number}.py", 1)
            assert recording.complete is not writing


SUITE = """
import sys
import torch

def test_one():
    connection = sys.modules["anymps.capture._recorder"]._current._writer._connection
    pages, = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    x = torch.ones(4, device="mps")
    for _ in range(2000):
        x = x + 1

def test_two():
    assert torch.ones(1, device="mps").item() == 1
"""


def test_a_session_of_pytest_says_so_at_its_end(gate: Gate) -> None:
    """Tests are judged as ever; the session does not end well, because the recording that it was asked for is not."""
    gate.write(test_it=SUITE)
    result = gate.run("--mps-recording", "run.anymps")
    result.assert_outcomes(passed=2)
    path = gate.path / "run.anymps"
    assert f"recording stopped: {path} {FULL}. What was recorded before can be read." in section(result)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    with Recording.open(path) as recording:
        assert not recording.complete


SCRIPT = """
import resource, time, torch
x = torch.ones(4, device="mps")
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for number in range(40_000):
    x = x + 1
print("done")
"""


def recorded(program: str, folder: Path) -> tuple[Result, Path]:
    """What `anymps run` says of a program, and its recording, which is not whole."""
    (folder / "train.py").write_text(program)
    result = run_command("-m", "anymps", "run", "--mac", MAC, "--record", "run.anymps", "train.py", cwd=folder)
    assert (result.out, result.status) == ("done\n", 2), result.err
    assert "Traceback" not in result.err
    return result, folder / "run.anymps"


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_anymps_run_says_so_once(tmp_path: Path) -> None:
    """The script ends as it would; the command's own status tells that the recording is not whole."""
    result, _ = recorded(SCRIPT, tmp_path)
    said = [line for line in result.err.splitlines() if "cannot be written" in line]
    assert [line.partition("error. ")[0] for line in said] == [
        "anymps: recording stopped: run.anymps cannot be written: disk I/O "
    ]


CLOSING = """
import os, sys, torch
x = torch.ones(4, device="mps")
for number in range(100):
    x = x + 1
capture = sys.modules["anymps.capture._recorder"]._current
capture.flush()
os.closerange(3, 256)
files = [open(f"file{number}", "w+b", buffering=0) for number in range(20)]
for file in files:
    file.write(b"its own" * 10_000)
for times in range(3):
    for number in range(2000):
        x = x + 1
    capture.flush()
print("done")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors of POSIX")
def test_a_program_that_closes_all_descriptors(tmp_path: Path) -> None:
    """As daemons do: the numbers are its own files' from then on, and nothing is written into them."""
    result, path = recorded(CLOSING, tmp_path)
    assert {(tmp_path / f"file{number}").read_bytes() for number in range(20)} == {b"its own" * 10_000}
    assert [line for line in result.err.splitlines() if "descriptors" in line] == [
        "anymps: recording stopped: run.anymps cannot be written: the program has closed file descriptors that it did "
        "not open. The run continues; what was recorded before can be read."
    ]
    with Recording.open(path) as recording:
        assert not recording.complete
        assert [use.count for use in recording.operators() if use.name == "aten::add.Tensor"] == [100]
