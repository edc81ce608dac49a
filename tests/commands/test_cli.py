"""The command line parses, calls and prints: options, one-line errors, exit codes, and what `run` hands on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import anymps
import anymps.commands
import anymps.report
from anymps._command_settings import RunSettings
from anymps.commands import _run, main
from anymps.commands._recordings import keep_as_last, place_of_run
from anymps.commands._session import RunSession
from anymps.commands._target import Target
from anymps.commands.doctor import _command as _doctor
from anymps.commands.doctor._facts import Facts
from anymps.findings import Story, find
from anymps.record import Recording, RecordingBuilder, RecordingWriter
from anymps.report import render_terminal
from processes import clean_environment, run_python


def status_of(*words: str) -> int:
    """Run the command line in this process; return its exit status."""
    return main(words)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Target, RunSettings]]:
    """What `run` would have run, in place of running it."""
    calls: list[tuple[Target, RunSettings]] = []

    def run_target(target: Target, session: RunSession) -> int:
        calls.append((target, session._asked))
        return 0

    monkeypatch.setattr(_run, "run_target", run_target)
    return calls


@pytest.mark.parametrize(
    ("words", "target", "options"),
    [
        (["train.py"], Target("train.py"), RunSettings()),
        (["train.py", "--lr", "3", "--mac", "x"], Target("train.py", ("--lr", "3", "--mac", "x")), RunSettings()),
        (["train.py", "--", "-m", "x"], Target("train.py", ("--", "-m", "x")), RunSettings()),
        (["--", "--odd.py", "--help"], Target("--odd.py", ("--help",)), RunSettings()),
        (["-m", "pkg.train", "--no-report"], Target("pkg.train", ("--no-report",), True), RunSettings()),
        (["-mpkg", "-m", "--"], Target("pkg", ("-m", "--"), True), RunSettings()),
        (
            ["--mac", "M3 Pro 18GB", "--fallback", "train.py", "--no-fallback"],
            Target("train.py", ("--no-fallback",)),
            RunSettings(mac="M3 Pro 18GB", fallback=True),
        ),
        (["--mac=M1 8GB", "-m", "x"], Target("x", (), True), RunSettings(mac="M1 8GB")),
        (["--no-fallback", "train.py"], Target("train.py"), RunSettings(fallback=False)),
        (["--record", "a.db", "train.py"], Target("train.py"), RunSettings(record=Path("a.db"))),
        (["--check-shaders", "train.py"], Target("train.py"), RunSettings(check_shaders="1")),
        (["--check-shaders", "all", "train.py"], Target("train.py"), RunSettings(check_shaders="all")),
        (["--check-shaders", "7", "train.py"], Target("train.py"), RunSettings(check_shaders="7")),
        (["--check-numbers", "train.py"], Target("train.py"), RunSettings(check_numbers="some")),
        (["--check-numbers", "all", "train.py"], Target("train.py"), RunSettings(check_numbers="all")),
        (["--check-numbers=all", "train.py"], Target("train.py"), RunSettings(check_numbers="all")),
        (["--steps", "10:30", "train.py", "--steps"], Target("train.py", ("--steps",)), RunSettings(steps=(10, 30))),
        (["--steps=:30", "train.py"], Target("train.py"), RunSettings(steps=(0, 30))),
        (["--steps=8", "train.py"], Target("train.py"), RunSettings(steps=(0, 8))),
        (
            ["--fail-on", "warning", "train.py", "--fail-on"],
            Target("train.py", ("--fail-on",)),
            RunSettings(fail_on="warning"),
        ),
        (["--fail-on=never", "-m", "x"], Target("x", (), True), RunSettings(fail_on="never")),
        (
            ["--baseline", "b.json", "--write-baseline", "train.py"],
            Target("train.py"),
            RunSettings(baseline=Path("b.json"), write_baseline=True),
        ),
        (
            ["--report", "html=r.html", "--report=json=-", "--root", "/", "train.py", "--report"],
            Target("train.py", ("--report",)),
            RunSettings(reports=("html=r.html", "json=-"), root="/"),
        ),
    ],
)
def test_run_options(
    parsed: list[tuple[Target, RunSettings]], words: list[str], target: Target, options: RunSettings
) -> None:
    """Our options end at the script or after `-m module`; all that follows is the script's, untouched."""
    assert status_of("run", *words) == 0
    assert parsed == [(target, options)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run"], "name a script, or a module with -m (anymps run --help)"),
        (
            ["plan", "--report", "sarif=x", "s.py"],
            "--report: there is no format 'sarif'; the formats are terminal, html, markdown, json",
        ),
        (
            ["run", "--report", "html=", "s.py"],
            "--report: 'html=' names no file: write FORMAT=FILE, such as html=report.html",
        ),
        (
            ["report", "nowhere.db"],
            "nowhere.db does not exist: make a recording with `anymps run --record FILE script.py`",
        ),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], text: str
) -> None:
    """A user's mistake is one line on stderr that starts with our name, and 2; there is no traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert status_of(*words) == 2
    assert capsys.readouterr() == ("", f"anymps: {text}\n")


@pytest.mark.parametrize("command", ["run", "plan", "compare"])
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("folder", "it is a directory (name a file in it)"),
        ("no/x.txt", "there is no directory {here}/no"),
        ("kept.txt", "it is read-only (chmod u+w kept.txt)"),
    ],
)
def test_a_report_is_checked_before_the_script_runs(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    path: str,
    text: str,
) -> None:
    """A report that cannot be written is one line at once, whatever the script would do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("folder").mkdir()
    Path("kept.txt").touch(0o444)
    Path("stops.py").write_text("raise SystemExit('it ran')")
    assert status_of(command, "--report", f"html={path}", "stops.py") == 2
    assert capsys.readouterr() == ("", f"anymps: {path} cannot be written: {text.format(here=tmp_path)}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["run", "--no-such-option", "s.py"],
        ["run", "--mac"],
        ["run", "-m"],
        ["run", "--require", "any", "s.py"],
        ["run", "--fail-on=fatal", "s.py"],
        ["run", "--fail-on", "s.py"],
        ["report", "a", "--format"],
        ["report", "a", "--format", "pdf"],
        ["diff", "a"],
        ["diff", "a", "b", "--fail-on", "fatal"],
        ["doctor", "x"],
    ],
)
def test_wrong_options_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """Wrong options are one line and 2 as well, and say where the help is (the words are click's)."""
    assert status_of(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"anymps: [^\n]* \(anymps( \w+)? --help\)\n", err)


def test_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """They are stable."""
    assert status_of("--help") == 0
    shown = re.findall(r"^  +(\d+)  ", capsys.readouterr().out.partition("Exit codes")[2], flags=re.MULTILINE)
    assert shown == ["0", "1", "2", "3", "4", "70", "130"]


def test_faults_keep_their_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours is not dressed up as a mistake of the user's: its traceback is shown, and the code is 70."""

    def broken() -> Facts:
        raise KeyError("a fault")

    monkeypatch.setattr(_doctor, "gather", broken)
    assert status_of("doctor") == 70
    assert capsys.readouterr().err.endswith("KeyError: 'a fault'\n")


def test_interrupted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a command of ours is one line and 130."""

    def interrupt() -> Facts:
        raise KeyboardInterrupt

    monkeypatch.setattr(_doctor, "gather", interrupt)
    assert status_of("doctor") == 130
    assert capsys.readouterr() == ("", "\nanymps: interrupted\n")  # the first line ends the terminal's ^C


@pytest.mark.parametrize(("torch", "status"), [("2.13.0", 0), (None, 1)])
def test_doctor_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, torch: str | None, status: int
) -> None:
    """`doctor` ends with 0 if anymps can give a device, else with 1."""
    facts = Facts(system="Linux", machine="x86_64", python="3.12.4", torch=torch, core_built=True)
    monkeypatch.setattr(_doctor, "gather", lambda: facts)
    assert status_of("doctor") == status
    assert capsys.readouterr().out.startswith("mps in torch  ")


def test_python_m_anymps() -> None:
    """`python -m anymps` is the same command line, in a real process, without torch being imported for it."""
    code = "import sys, anymps.commands; print('torch' in sys.modules)"
    environment = clean_environment()
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
    answer = subprocess.run(
        [sys.executable, "-m", "anymps", "--version"], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout == f"anymps {anymps.__version__}\n"


def test_report_of_the_last_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a file it is the last run that is shown; before any run, one line says what to do."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    assert status_of("report") == 2
    text = "anymps: no previous run was found: name a recording, or run a script with `anymps run` first\n"
    assert capsys.readouterr() == ("", text)
    for mac in ("M1 8GB", "M2 8GB"):
        path = place_of_run()
        assert path is not None
        RecordingBuilder(RecordingWriter(path, {"mac": mac})).close()
        assert keep_as_last(path)
    with Recording.open(tmp_path / "runs" / "last.anymps") as recording:
        expected = render_terminal(Story.of(recording), find(recording), brief=True)
    assert "M2 8GB" in expected
    assert status_of("report") == 0
    assert capsys.readouterr() == (expected, "")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["last.anymps"]
    assert (tmp_path / "runs").stat().st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_written_keeps_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run goes on without a place for its recording; nothing is kept then."""
    (tmp_path / "runs").write_text("in the way")
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    assert place_of_run() is None
    assert not keep_as_last(tmp_path / "run.anymps")


def test_what_killed_runs_left_goes_after_a_day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The recording of a run that was killed stays a day, then the next run takes it away."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    runs = tmp_path / "runs"
    runs.mkdir()
    for name, age in (("run-1.anymps", 90_000), ("run-2.anymps", 60), ("last.anymps", 90_000)):
        (runs / name).touch()
        when = (runs / name).stat().st_mtime - age
        os.utime(runs / name, (when, when))
    place_of_run()
    assert sorted(path.name for path in runs.iterdir()) == ["last.anymps", "run-2.anymps"]


def test_a_command_loads_itself_alone() -> None:
    """All together take half a second."""
    code = """
        import sys
        from anymps.commands import main

        def loaded():
            return sorted(name for name in sys.modules if name.startswith(("anymps.commands.", "anymps.findings")))

        main(["--version"])
        print(loaded())
        main(["convert", "--help"])
        print(loaded())
    """
    lines = run_python(code).lines
    loaded = "['anymps.commands._convert', 'anymps.commands._help', 'anymps.commands._options']"
    assert (lines[1], lines[-1]) == ("['anymps.commands._help']", loaded)


@pytest.mark.parametrize("name", list(anymps.commands._MODULES))
def test_each_command_has_its_name(name: str) -> None:
    """The table of modules names it as it names itself."""
    command = anymps.commands._commands.get_command(click.Context(anymps.commands._commands), name)
    assert command is not None
    assert command.name == name
