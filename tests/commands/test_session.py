"""The session of `anymps run`: what is recorded, and what the new process makes of the recording."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anymps
from anymps._command_settings import RunSettings
from anymps._errors import RecordingError
from anymps._own_process import FreshProcess, unpacked
from anymps.commands._conclude import conclude
from anymps.commands._session import Conclusion, RunSession
from anymps.commands._target import Target
from anymps.record import Phase, RecordingBuilder, RecordingWriter, Wait
from anymps.report import Output, Outputs


class FakeHandle:
    """What `anymps.record` yields: notes what it is told."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def close(self, exit_info: dict[str, object]) -> None:
        self.log.append(("close", exit_info))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Stands in for the device, the recorder and the new process; what they are asked for, in order."""
    log: list[Any] = []

    @contextlib.contextmanager
    def record(path: Path | None, **more: object) -> Iterator[FakeHandle]:
        log.append(("record", path, more))
        yield FakeHandle(log)

    def run(self: object, command: list[str]) -> int:
        log.append(unpacked(command[-1]))
        return 3

    monkeypatch.setattr(anymps, "enable", lambda mac=None, **more: log.append(("enable", mac, more)))
    monkeypatch.setattr(anymps, "record", record)
    monkeypatch.setattr(FreshProcess, "run", run)
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("ANYMPS_CHILDREN", "ANYMPS_CHILD_RANK", "PYTHONPATH"):  # not every session is closed
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return log


def test_session_in_order(log: list[Any]) -> None:
    """The device is switched on, then recording begins; at the end it is closed, then a new process has the order."""
    asked = RunSettings(mac="M1 8GB", fallback=True, require="virtual", record=Path("x.db"), children=False)
    outputs = Outputs((Output("json", "-"),))
    session = RunSession(asked, outputs)
    session.start(Target("train.py", ("--lr", "3")))
    told = dict.fromkeys(("substrate", "kernels", "cuda_as_mps", "start_method"))
    assert log == [
        ("enable", "M1 8GB", {**told, "require": "virtual", "fallback": True}),
        ("record", Path("x.db"), {"script": "train.py", "argv": ["--lr", "3"], "source": None, "steps": None}),
    ]
    assert session.finish({"status": 0}) == 3
    order = Conclusion(asked, outputs, Path("train.py"), Path("x.db"), os.getpid())
    assert log[2:] == [("close", {"status": 0}), (order, True)]


def test_session_that_a_signal_ends(log: list[Any], tmp_path: Path) -> None:
    """`keep` closes the recording, which becomes the last run's; nothing is shown."""
    session = RunSession(RunSettings(children=False))
    session.start(Target("train.py"))
    session.keep({"status": 143, "how": "SIGTERM"})
    place = tmp_path / "cache" / "runs" / f"run-{os.getpid()}.anymps"
    order = Conclusion(RunSettings(children=False), Outputs(), Path("train.py"), place, os.getpid(), None, passing=True)
    assert log[2:] == [("close", {"status": 143, "how": "SIGTERM"}), (order, False)]


def test_session_without_a_cache(log: list[Any], tmp_path: Path) -> None:
    """The recording lies where the system keeps temporary files until the report is made."""
    (tmp_path / "cache").write_text("in the way")
    session = RunSession(RunSettings(children=False))
    session.start(Target("train.py"))
    place = log[1][1]
    assert place.parent.is_dir()
    session.finish({"status": 0})
    assert not place.parent.exists()


def test_a_recording_that_cannot_be_closed_is_reported(log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it goes; the error is ours, and is shown whole."""

    def close(self: object, exit_info: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(FakeHandle, "close", close)
    session = RunSession(RunSettings(children=False))
    session.start(Target("train.py"))
    with pytest.raises(ValueError, match="a fault"):
        session.finish({"status": 0})
    assert log[-1][1] is True


def test_recording_is_checked_before_the_device(log: list[Any], tmp_path: Path) -> None:
    """A recording that cannot be written is found before the device says what it acts as."""
    (tmp_path / "notes.txt").write_text("mine")
    for name, text in (
        ("", " is a directory: give the name of a file to record into"),
        ("/no/x", f"/no/x cannot be written: there is no directory {tmp_path}/no"),
        ("/notes.txt", "/notes.txt is not a recording, so it will not be overwritten: name another file"),
    ):
        with pytest.raises(RecordingError) as error:
            RunSession(RunSettings(record=Path(f"{tmp_path}{name}"))).start(Target("train.py"))
        assert str(error.value) == f"{tmp_path}{text}"
    assert log == []


def test_session_names_the_source(log: list[Any]) -> None:
    """What records is handed on; by default it is what the device has."""
    for source in (None, "observer"):
        log.clear()
        RunSession(RunSettings(source=source)).start(Target("train.py"))
        assert log[1][2] == {"script": "train.py", "argv": [], "source": source, "steps": None}


NO_PROCESS = "anymps: there is no report: no process can be started ({}). See it with: anymps report {}\n"


@pytest.mark.parametrize("kept", [True, False])
def test_where_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kept: bool
) -> None:
    """One line says so, and where the recording is; without --record it is the last run's."""

    def start(*_: object, **__: object) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    path = tmp_path / "run.anymps" if kept else tmp_path / "runs" / "last.anymps"
    session = RunSession(RunSettings(children=False, record=path if kept else None))
    session.start(Target("train.py"))
    monkeypatch.setattr(subprocess, "Popen", start)
    capfd.readouterr()
    assert session.finish({"status": 0}) == 2
    assert capfd.readouterr() == ("", NO_PROCESS.format(os.strerror(errno.EAGAIN), path))
    assert path.exists()


def test_where_the_recordings_of_processes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing joins them without a report's process: a line says how to see them all."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "run.anymps"
    session = RunSession(RunSettings(record=path))
    session.start(Target("train.py"))
    folder = Path(os.environ["ANYMPS_CHILDREN"])
    (tmp_path / "part").mkdir()
    recorded(tmp_path / "part").replace(folder / "1-2.anymps")
    monkeypatch.setattr(FreshProcess, "run", lambda *_: "its process was ended by signal 9")
    capfd.readouterr()
    assert session.finish({"status": 0}) == 2
    assert capfd.readouterr() == (
        "",
        "anymps: there is no report: its process was ended by signal 9. "
        f"See it with: anymps report {path} {folder}/*.anymps\n",
    )
    assert (folder / "1-2.anymps").exists()


def test_a_python_that_does_not_know_its_program(tmp_path: Path) -> None:
    """It can start no process, as one that a program embeds."""
    for nothing in (None, ""):
        status = FreshProcess().run([nothing, "x.py"])  # type: ignore[list-item]
        assert str(status).startswith("no process can be started (")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by signal 9"),
        ("raise SystemExit(127)", "its process could not start (status 127)"),
    ],
)
def test_a_process_that_comes_to_no_end_of_its_own(code: str, why: str) -> None:
    """What it ended with is no exit status of a run."""
    assert FreshProcess().run([sys.executable, "-c", code]) == why


def recorded(folder: Path, calls: int = 4, *, complete: bool = True) -> Path:
    """A recording with one finding, of this process."""
    path = folder / "run.anymps"
    meta = {"mac": "M1 8GB", "process": os.getpid(), "torch_version": "2.13.0", "virtual": True}
    builder = RecordingBuilder(RecordingWriter(path, meta))
    site = builder.site("/p/train.py", 12, "main", "print(loss.item())")
    for step in range(calls):
        builder.entry("aten::_local_scalar_dense", start_ns=step, phase=Phase.LOSS_READ, wait=Wait.ITEM, site=site)
        builder.end_step(step + 1)
    if complete:
        builder.close()
    else:
        builder.flush()
    return path


def concluded(path: Path, asked: RunSettings, *outputs: Output, process: int = 0) -> int:
    """The exit status of the new process, in this one."""
    order = Conclusion(asked, Outputs(outputs), path.parent, path, process or os.getpid())
    return conclude(order, True)


def test_the_report_of_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The short one is on stderr; each other form goes to its file or to stdout, with it or without."""
    path = recorded(tmp_path)
    outputs = (Output("json", str(tmp_path / "r.json")), Output("github", "-"))
    for shown in (True, False):
        assert concluded(path, RunSettings(record=path, report=shown), *outputs) == 0
        assert [told["id"] for told in json.loads((tmp_path / "r.json").read_text())["findings"]] == ["MPS202"]
        out, err = capfd.readouterr()
        assert out.startswith("::notice title=anymps::Would run on M1 8GB. 1 warning.")
        assert (err.endswith(f"Full report: anymps report {path}\n"), bool(err)) == (shown, shown)


@pytest.mark.parametrize(("severity", "status"), [("warning", 3), ("error", 0)])
def test_findings_fail_a_run(tmp_path: Path, severity: str, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a report, too."""
    assert concluded(recorded(tmp_path), RunSettings(report=False, fail_on=severity)) == status
    assert capfd.readouterr() == ("", "")


def test_a_recording_that_is_not_whole(tmp_path: Path) -> None:
    """The run fails for it where something was to be made of it."""
    path = recorded(tmp_path, complete=False)
    assert concluded(path, RunSettings(record=path, report=False)) == 2
    assert concluded(path, RunSettings(report=False)) == 0


def test_a_recording_of_another_run(tmp_path: Path) -> None:
    """A run whose file another one has taken has no report: it would be the other's."""
    path = recorded(tmp_path)
    with pytest.raises(RecordingError) as error:
        concluded(path, RunSettings(record=path), process=1)
    assert str(error.value) == f"{path} belongs to another run by now, so there is no report of this one"
