"""The session of `anymps run`: what is recorded, which reports are shown and written, and in which order."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

import anymps
import anymps.commands
import anymps.report
from anymps._command_settings import RunSettings
from anymps._errors import RecordingError
from anymps._own_python import OwnPython
from anymps.commands import _judge
from anymps.commands._last_run import LastRun
from anymps.commands._session import RunSession
from anymps.commands._target import Target
from anymps.findings import Finding, Severity, Story
from anymps.record import Meta, RecordingBuilder, Site
from anymps.report import Output, Outputs


def finding(severity: Severity) -> Finding:
    """A finding of a severity; the rest does not matter here."""
    return Finding(
        id="MPS000",
        severity=severity,
        title="",
        site=Site("train.py", 1),
        count=1,
        per_step=1.0,
        cost_ns=(0, 0),
        what="",
        why="",
        fix="",
        source="",
    )


class FakeRecording:
    """A recording that is only asked for the facts about its run."""

    def __init__(self) -> None:
        self.run = Meta(directory="/home/me")

    def __str__(self) -> str:
        return "the recording"


class FakeHandle:
    """What `anymps.record` yields: notes what it is told."""

    failure = None

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.recording = FakeRecording()

    def close(self, exit_info: dict[str, object]) -> None:
        self.log.append(("close", exit_info))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stands in for the device, the recorder, the rules and the renderer; what they are asked for, in order."""
    log: list[Any] = []

    def enable(mac: str | None = None, **more: object) -> None:
        log.append(("enable", mac, more))

    @contextlib.contextmanager
    def record(path: Path | None, **more: object) -> Iterator[FakeHandle]:
        log.append(("record", path, more))
        yield FakeHandle(log)

    def print_terminal(recording: object, findings: list[Finding], stream: TextIO) -> None:
        stream.write(f"{recording}, {len(findings)} finding\n")

    def print_summary(recording: object, findings: list[Finding], stream: TextIO, *, whole: str) -> None:
        stream.write(f"{recording} in short; whole: {whole}\n")

    of = Story.of

    def story_of(recording: Any) -> Any:
        return recording if isinstance(recording, FakeRecording) else of(recording)

    monkeypatch.setattr(Story, "of", story_of)
    monkeypatch.setattr(anymps, "enable", enable)
    monkeypatch.setattr(anymps, "is_virtual", lambda: True)
    monkeypatch.setattr(anymps, "record", record)
    monkeypatch.setattr(_judge, "find", lambda recording: [finding(Severity.WARNING)])
    monkeypatch.setattr(anymps.report, "print_terminal", print_terminal)
    monkeypatch.setattr(anymps.report, "print_summary", print_summary)
    monkeypatch.setattr(LastRun, "open", lambda self: None)
    for name in ("ANYMPS_CHILDREN", "ANYMPS_CHILD_RANK", "PYTHONPATH"):  # not every session is closed
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return log


def test_session_in_order(log: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The device is switched on, then recording begins; at the end it is closed, then the report goes to stderr."""
    session = RunSession(RunSettings(mac="M1 8GB", fallback=True, require="virtual", record=Path("x.db")))
    session.start(Target("train.py", ("--lr", "3")))
    assert log == [
        (
            "enable",
            "M1 8GB",
            {
                "substrate": None,
                "require": "virtual",
                "fallback": True,
                "kernels": None,
                "cuda_as_mps": None,
                "start_method": None,
            },
        ),
        ("record", Path("x.db"), {"script": "train.py", "argv": ["--lr", "3"], "source": None, "steps": None}),
    ]
    assert session.finish({"status": 0}) == 0
    assert log[2:] == [("close", {"status": 0})]
    assert capsys.readouterr() == ("", "the recording in short; whole: anymps report x.db\n")


def test_session_report_goes_to_the_first_stderr(log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that puts something else in the place of `sys.stderr` does not get our report."""
    ours = io.StringIO()
    monkeypatch.setattr(sys, "stderr", ours)
    session = RunSession(RunSettings())
    session.start(Target("train.py"))
    python = OwnPython()  # as the runner takes it down before the script
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with python.restored():
        session.finish({"status": 0})
    python.close()
    assert ours.getvalue() == "the recording in short; whole: anymps run -v ...\n"


def test_session_without_report(log: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """`--no-report` shows nothing; `--fail-on` still counts."""
    for severity, status in (("warning", 3), ("error", 0)):
        session = RunSession(RunSettings(report=False, fail_on=severity))
        session.start(Target("train.py"))
        assert session.finish({"status": 0}) == status
    assert capsys.readouterr() == ("", "")


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


def test_session_writes_other_forms(
    log: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`--report` writes each form to its file and to the first stdout, beside the report on stderr or without it."""
    recording = RecordingBuilder(meta={"mac": "M1 8GB"}).close()
    ours = io.StringIO()
    monkeypatch.setattr(sys, "stdout", ours)
    monkeypatch.setattr(FakeHandle, "recording", recording, raising=False)
    monkeypatch.setattr(FakeHandle, "__init__", lambda self, log: setattr(self, "log", log))
    outputs = Outputs((Output("json", str(tmp_path / "r.json")), Output("github", "-")))
    for shown in (True, False):
        session = RunSession(RunSettings(report=shown), outputs)
        session.start(Target("train.py"))
        python = OwnPython()
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        with python.restored():
            assert session.finish({"status": 0}) == 0
        python.close()
        monkeypatch.setattr(sys, "stdout", ours)
        assert json.loads((tmp_path / "r.json").read_text())["run"] == {"mac": "M1 8GB"}
        assert ours.getvalue().startswith(
            "::notice title=anymps::Nothing ran on mps, so this says nothing about M1 8GB."
        )
        assert bool(capsys.readouterr().err) is shown


def test_session_kept_without_report(log: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """`keep` closes the recording and shows nothing."""
    session = RunSession(RunSettings())
    session.start(Target("train.py"))
    session.keep({"status": 143, "how": "SIGTERM"})
    assert log[2:] == [("close", {"status": 143, "how": "SIGTERM"})]
    assert capsys.readouterr() == ("", "")


def test_session_names_the_source(log: list[Any]) -> None:
    """What records is handed on; by default it is what the device has."""
    for source in (None, "observer"):
        log.clear()
        RunSession(RunSettings(source=source)).start(Target("train.py"))
        assert log[1] == ("record", None, {"script": "train.py", "argv": [], "source": source, "steps": None})
