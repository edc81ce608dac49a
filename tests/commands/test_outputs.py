"""Where reports go: every form to a file or to standard output, whole or not at all, and never over a recording."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from anymps import UsageError
from anymps._settings import FORMATS
from anymps.commands import main
from anymps.findings import Story, find
from anymps.record import Phase, Recording, RecordingBuilder, RecordingWriter, Wait
from anymps.report import Output, Outputs, report_pieces
from processes import clean_environment

ENVIRONMENT = clean_environment()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording with one finding, as a file."""
    path = tmp_path / "run.anymps"
    builder = RecordingBuilder(RecordingWriter(path, {"mac": "M1 8GB", "directory": "/p"}))
    site = builder.site("/p/train.py", 12, "main", "print(loss.item())  # größe")
    for step in range(4):
        builder.entry("aten::_local_scalar_dense", start_ns=step, phase=Phase.LOSS_READ, wait=Wait.ITEM, site=site)
        builder.end_step(step + 1)
    builder.close()
    return path


def expected(recording: Path, form: str) -> str:
    """What the renderer makes of it."""
    with Recording.open(recording) as opened:
        return "".join(report_pieces(form, Story.of(opened), find(opened)))


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_to_a_file_and_to_stdout(
    capfdbinary: pytest.CaptureFixture[bytes], recording: Path, form: str
) -> None:
    """`--format` and `--output` write what the renderer makes, in UTF-8, to a file or to standard output."""
    output = recording.with_name("report")
    assert main(["report", str(recording), "--format", form, "--output", str(output)]) == 0
    assert output.read_text(encoding="utf-8") == expected(recording, form)
    assert main(["report", str(recording), "--format", form, "-v"]) == 0
    assert capfdbinary.readouterr() == (expected(recording, form).encode(), b"")
    assert {path.name for path in recording.parent.iterdir()} == {"report", "run.anymps"}


def test_root_of_the_command(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    """`--root` is what paths are told from."""
    assert main(["report", str(recording), "--format", "github", "--root", "/"]) == 0
    assert "\n::warning file=p/train.py,line=12," in capsys.readouterr().out


def test_a_recording_is_never_overwritten(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    """A report that would replace a recording, by whatever name, is refused, and the recording stays."""
    before = recording.read_bytes()
    link = recording.with_name("link")
    link.symlink_to(recording)
    for path in (recording, link):
        assert main(["report", str(recording), "--format", "html", "--output", str(path)]) == 2
        text = f"anymps: {path} is a recording and will not be overwritten: name another file\n"
        assert capsys.readouterr() == ("", text)
    assert recording.read_bytes() == before


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ((Output("html", "."),), ". cannot be written: it is a directory (name a file in it)"),
        ((Output("html", "no/x"),), "no/x cannot be written: there is no directory {folder}/no"),
        ((Output("html", "x"), Output("json", "./x")), "./x is named twice: give each report a file of its own"),
        (
            (Output("html", "-"), Output("json", "-")),
            "standard output is named twice: give each report a file of its own",
        ),
        ((Output("html", "new.anymps"),), "new.anymps is named twice: give each report a file of its own"),
    ],
)
def test_outputs_are_checked_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outputs: tuple[Output, ...], text: str
) -> None:
    """What cannot be written, or would be written twice, is found before hours of training."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        Outputs(outputs).check(Path("new.anymps"))
    assert str(error.value) == text.format(folder=tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
@pytest.mark.parametrize("form", ["html", "terminal"])
def test_full_disk_is_one_line(recording: Path, form: str) -> None:
    """A disk that is full is one line and 2, for a file and for standard output, in a real process."""
    command = [sys.executable, "-m", "anymps", "report", str(recording), "--format", form]
    answer = subprocess.run(
        [*command, "--output", "/dev/full"], check=False, env=ENVIRONMENT, capture_output=True, text=True
    )
    line = "anymps: /dev/full cannot be written: No space left on device\n"
    assert (answer.returncode, answer.stdout, answer.stderr) == (2, "", line)
    with open("/dev/full", "w") as full:
        answer = subprocess.run(command, check=False, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True)
    what = "the report cannot be shown" if form == "terminal" else "standard output cannot be written"
    assert (answer.returncode, answer.stderr) == (2, f"anymps: {what}: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
@pytest.mark.parametrize("errors", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("end", "options"), [(0, ""), (5, "-v"), (1, "--fail-on warning")])
def test_the_scripts_status_without_standard_error(errors: str, end: int, options: str, tmp_path: Path) -> None:
    """What cannot be said is not said: the script's status and output are what they are without anymps."""
    (tmp_path / "s.py").write_text(
        f"import torch\ntorch.ones(2, device='mps').add(1)\nprint('done')\nraise SystemExit({end})\n"
    )
    command = f"{shlex.quote(sys.executable)} -m anymps run {options} s.py {errors}"
    answer = subprocess.run(
        command, shell=True, check=False, env=ENVIRONMENT, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert (answer.returncode, answer.stdout) == (end, "done\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["coverage", "add", "--torch", "2.13"]])
def test_full_output_of_any_command_is_one_line(arguments: list[str]) -> None:
    """What only prints says in one line that it cannot, and ends with 2."""
    with open("/dev/full", "w") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "anymps", *arguments], check=False, env=ENVIRONMENT, stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    line = "anymps: standard output cannot be written: No space left on device\n"
    assert (answer.returncode, answer.stderr) == (2, line)


def test_output_that_is_closed() -> None:
    """Where whoever started us has closed standard output, there is nothing to print to and nothing to complain of."""
    command = f"{sys.executable} -m anymps explain >&-"
    answer = subprocess.run(["bash", "-c", command], check=False, env=ENVIRONMENT, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_a_reader_that_goes_away(recording: Path) -> None:
    """A pipe whose reader has gone ends the command quietly."""
    command = f"{sys.executable} -m anymps report {recording} --format html | head -c 10"
    answer = subprocess.run(["bash", "-c", command], check=False, env=ENVIRONMENT, capture_output=True, text=True)
    assert (answer.stdout, answer.stderr) == ("<!doctype ", "")


def test_a_reader_of_a_run_that_goes_away(recording: Path) -> None:
    """A report on standard output that nobody reads any more keeps no other report from being written."""
    reader, writer = os.pipe()
    os.close(reader)
    path = recording.with_name("b")
    with os.fdopen(writer, "w") as stream, Recording.open(recording) as opened:
        Outputs((Output("json", "-"), Output("json", str(path)))).write(Story.of(opened), find(opened), stream)
    assert path.read_text() == expected(recording, "json")


def test_one_failure_does_not_keep_others_back(recording: Path) -> None:
    """Of several reports, those that can be written are, and the failure is told afterwards."""
    folder = recording.parent / "gone"
    folder.mkdir()
    outputs = Outputs((Output("json", str(folder / "a")), Output("json", str(recording.parent / "b"))))
    outputs.check()
    folder.rmdir()
    with Recording.open(recording) as opened, pytest.raises(UsageError) as error:
        outputs.write(Story.of(opened), find(opened), sys.stdout)
    assert str(error.value) == f"{folder / 'a'} cannot be written: No such file or directory"
    assert json.loads((recording.parent / "b").read_text())["format"] == "anymps-report"
