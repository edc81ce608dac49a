"""Source lines in a recording: kept when it is made, quoted without a look at any file."""

from __future__ import annotations

import linecache
import os
import sys
from pathlib import Path

import pytest
import torch

import anymps
from anymps._settings import FORMATS
from anymps.commands import main
from anymps.findings import Settings, Story, find, select
from anymps.record import Recording, RecordingBuilder, RecordingWriter, RefusalKind, Site
from anymps.report import report_pieces
from anymps.source import Quote, quote_file, quote_text

TEXT = """\
import torch

def main():
    x = torch.ones(3, device="mps")
    total = float(
        x.sum()
    )  # anymps: ignore[MPS201] once
    return total
"""


def test_a_quote_is_the_line_with_those_around_it() -> None:
    """Three lines on both sides, with their margins, and comments for anymps in the other lines of the statement."""
    lines = TEXT.splitlines()
    comment = "    )  # anymps: ignore[MPS201] once"
    assert quote_text(TEXT, 5) == Quote("total = float(", 2, "\n".join(lines[1:8]), comment)
    assert quote_text(TEXT, 1) == Quote("import torch", 1, "\n".join(lines[:4]), "")
    assert quote_text(TEXT, 9) == quote_text("", 1) == quote_text(TEXT, 0) == Quote()
    assert quote_text("a\x0cb\r\nc", 2) == Quote("c", 1, "a\x0cb\nc", "")  # lines as Python counts them


def test_a_quote_is_of_the_code_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process may be given other code than its file has, as `anymps fix` does: that code is quoted."""
    script = tmp_path / "train.py"
    script.write_text("x = 1\n")
    assert quote_file(str(script), 1).source == "x = 1"
    monkeypatch.setitem(linecache.cache, str(script), (6, None, ["y = 2\n"], str(script)))
    assert quote_file(str(script), 1).source == "y = 2"


CALL = """\
import torch

optimizer = torch.optim.AdamW(
    net.parameters(),
    lr=1e-3,
    betas=(0.9, 0.99),
    eps=1e-8,
    weight_decay=0.1,
)
a = 1
b = 2
c = 3
d = 4
e = f(
"""


@pytest.mark.parametrize(
    ("line", "first", "last"), [(3, 1, 9), (4, 1, 9), (8, 3, 11), (9, 3, 12), (10, 7, 13), (13, 10, 14), (14, 11, 14)]
)
def test_a_statement_is_quoted_whole(line: int, first: int, last: int) -> None:
    """Where its parentheses go on beyond the three lines; a program that ends within one is quoted to its end."""
    quote = quote_text(CALL, line)
    assert (quote.first, quote.around) == (first, "\n".join(CALL.splitlines()[first - 1 : last]))


@pytest.mark.skipif(sys.platform == "win32", reason="pipes with names of POSIX")
def test_files_that_are_none_are_left_alone(tmp_path: Path) -> None:
    """The name of code is whatever its maker says. A pipe would wait for ever, a device never ends."""
    file = tmp_path / "train.py"
    file.write_text(TEXT)
    assert quote_file(str(file), 5).source == "total = float("
    file.write_text("x = 1\n" + TEXT)
    assert quote_file(str(file), 5).source == 'x = torch.ones(3, device="mps")'
    pipe, large, binary = tmp_path / "pipe", tmp_path / "large.py", tmp_path / "binary.py"
    os.mkfifo(pipe)
    large.write_text("x = 1\n" * 800_000)
    binary.write_bytes(b"x = '\xff'\n")
    for path in (pipe, "/dev/zero", large, binary, tmp_path, tmp_path / "missing.py", "nul\0.py", "<string>", ""):
        assert quote_file(str(path), 1) == Quote()


@pytest.mark.usefixtures("virtual_device")
def test_lines_are_kept_when_the_recording_is_made(tmp_path: Path) -> None:
    """What happens to the file later changes no report."""
    file = tmp_path / "train.py"
    file.write_text(TEXT)
    spaces: dict[str, object] = {}
    exec(compile(TEXT, str(file), "exec"), spaces)
    with anymps.record() as capture:
        spaces["main"]()  # type: ignore[operator]
    file.unlink()
    (wait,) = (waited for waited in capture.recording.waits() if waited.site.file == str(file))
    site = wait.site
    assert site == Site(str(file), 5, "main", "total = float(")
    assert (site.first, site.around.split("\n")[0], site.comments) == (2, "", "    )  # anymps: ignore[MPS201] once")
    assert torch.ones(1).device.type == "cpu"


KEY = ["-----BEGIN OPENSSH PRIVATE KEY-----", "aline", "bline", "cline", "-----END OPENSSH PRIVATE KEY-----"]


def naming(file: Path, path: Path, **meta: object) -> None:
    """A recording at `path` of which every line is one of `file`; the text of the first is known."""
    builder = RecordingBuilder(RecordingWriter(path, {"directory": str(file.parent), "script": file.name, **meta}))
    for line in range(1, 6):
        site = builder.site(str(file), line, "main", KEY[0])
        builder.refusal(RefusalKind.DTYPE, "TypeError", "no", operator="aten::mm", start_ns=0, site=site, origin=site)
    builder.close().close()


@pytest.mark.parametrize("form", FORMATS)
def test_a_recording_does_not_say_which_files_are_read(form: str, tmp_path: Path) -> None:
    """One line of a key is known to whoever made the recording; no other gets into a report, in any form."""
    (file := tmp_path / "id_ed25519").write_text("\n".join(KEY) + "\n")
    naming(file, tmp_path / "run.anymps")
    with Recording.open(tmp_path / "run.anymps") as recording:
        findings = select(find(recording), Settings(tmp_path), (str(tmp_path),)).findings
        assert findings
        report = "".join(report_pieces(form, Story.of(recording), findings, str(tmp_path)))
    assert not any(line in report for line in KEY[1:])


def test_settings_are_those_of_our_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script that a recording names is asked for its settings only if it lies below us or below `--root`."""
    other, here = tmp_path / "other", tmp_path / "here"
    other.mkdir()
    here.mkdir()
    (other / "train.py").write_text("x = 1\n")
    (other / "pyproject.toml").write_text("[tool.anymps]\nsecrets = 1\n")
    naming(other / "train.py", here / "run.anymps")
    monkeypatch.chdir(here)
    assert main(["report", "run.anymps"]) == 0
    assert main(["report", "run.anymps", "--root", str(other)]) == 2
    monkeypatch.chdir(tmp_path)
    assert main(["report", "here/run.anymps"]) == 2
    message = f"anymps: {other / 'pyproject.toml'}: [tool.anymps] has no key 'secrets': "
    message += "there are mac, substrate, severity, disable, per-file-disable, fail-on, baseline\n"
    assert capsys.readouterr().err == 2 * message


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("/p/a.py", "a.py"),
        ("/p/b/../a.py", "a.py"),
        ("/p/../etc/passwd", "file:///etc/passwd"),
        ("../../etc/passwd", "passwd"),
        ("b/../../etc/passwd", "passwd"),
        ("b/../a.py", "a.py"),
    ],
)
def test_paths_for_code_scanning_do_not_leave_the_root(file: str, uri: str) -> None:
    """A path below the root is told from there, without a way out of it; another one as a whole."""
    builder = RecordingBuilder(meta={"directory": "/p"})
    site = builder.site(file, 3, "main", "x = 1")
    builder.refusal(RefusalKind.DTYPE, "TypeError", "no", operator="aten::mm", start_ns=0, site=site)
    recording = builder.close()
    report = "".join(report_pieces("sarif", Story.of(recording), find(recording), "/p"))
    assert f'"uri": "{uri}"' in report
    assert ".." not in report.split('"results"')[1]
    annotations = "".join(report_pieces("github", Story.of(recording), find(recording), "/p"))
    assert ("file=a.py" in annotations) is (uri == "a.py")
    assert "file=.." not in annotations


def test_the_innermost_statement_speaks() -> None:
    """Not the `match` around it, whose other cases are lines of their own."""
    text = (
        "x = 1\nmatch kind:\n    case 1:\n        y = float(\n            x)  # anymps: ignore[MPS201] first\n"
        "    case 2:\n        y = 0  # anymps: ignore[MPS202] second\n"
    )
    assert quote_text(text, 4).comments == "            x)  # anymps: ignore[MPS201] first"
    assert quote_text(text, 7).comments == ""
