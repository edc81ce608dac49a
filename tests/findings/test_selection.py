"""Which findings count: by the project's settings, comments in the code and the baseline, and in the commands."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest

from anymps._errors import UsageError
from anymps._settings import Settings as Asked
from anymps.commands import main
from anymps.commands._judge import Judge
from anymps.findings import (
    RULES,
    Finding,
    Settings,
    Severity,
    find,
    read_baseline,
    read_settings,
    select,
    write_baseline,
)
from anymps.record import Known, Phase, Recording, RecordingBuilder, RecordingWriter, Site, Wait

ROOTS = ("/home/me/project",)
TRAIN = "/home/me/project/train.py"
PLAIN = Settings(Path("/home/me/project"))


def finding(
    rule: str = "MPS201", source: str = "loss.item()", line: int = 3, file: str = TRAIN, function: str = "main"
) -> Finding:
    """A finding of a rule at a line."""
    return RULES[rule].finding(Site(file, line, function, source), what="", count=1)


def recording(
    source: str, line: int = 3, text: str = "", *, writer: RecordingWriter | None = None, steps: int = 5
) -> Recording:
    """A loop that reads a value at a line with this source in each step; `text` is that of its file."""
    builder = RecordingBuilder(writer) if writer else RecordingBuilder(meta={"directory": "/home/me/project"})
    site = builder.site(TRAIN, line, "main", source, text=text)
    for step in range(steps):
        builder.entry("aten::_local_scalar_dense", start_ns=10 * step, phase=Phase.LOSS_READ, site=site, wait=Wait.ITEM)
        builder.end_step(10 * step + 10)
    return builder.close()


# --- settings


def settings(directory: Path, text: str) -> Settings:
    """The settings that a `pyproject.toml` with this table gives to a script beside it."""
    (directory / "pyproject.toml").write_text(f"[project]\nname = 'x'\n{text}")
    return read_settings(directory / "train.py")


def test_settings(tmp_path: Path) -> None:
    """Every key is read; the baseline lies beside the file."""
    text = """
[tool.anymps]
mac = "M1 8GB"
disable = ["MPS206"]
per-file-disable = { "tests/*" = ["MPS201", "MPS202"] }
fail-on = "warning"
baseline = "known.json"
[tool.anymps.severity]
MPS102 = "error"
"""
    assert settings(tmp_path, text) == Settings(
        root=tmp_path,
        mac="M1 8GB",
        severity={"MPS102": Severity.ERROR},
        disable=frozenset({"MPS206"}),
        per_file_disable={"tests/*": frozenset({"MPS201", "MPS202"})},
        fail_on=Severity.WARNING,
        baseline=tmp_path / "known.json",
    )


def test_settings_are_those_of_the_nearest_file_that_has_them(tmp_path: Path) -> None:
    """A file without the table is passed over; where none has it, the nearest file's directory is the project's."""
    inner = tmp_path / "package" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "package" / "pyproject.toml").write_text("[tool.other]\n")
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    assert read_settings(inner / "train.py") == Settings(tmp_path / "package")
    (tmp_path / "pyproject.toml").write_text("[tool.anymps]\nmac = 'M1 8GB'\n")
    assert read_settings(inner) == Settings(tmp_path, mac="M1 8GB")
    (inner / "pyproject.toml").write_text("[tool.anymps]\n")
    assert read_settings(inner / "train.py") == Settings(inner)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sevrity = 3", "has no key 'sevrity': the nearest is 'severity'"),
        (
            "zzz = 3",
            "has no key 'zzz': there are mac, substrate, severity, disable, per-file-disable, fail-on, baseline",
        ),
        ("mac = 3", "mac must be a non-empty string, not 3"),
        ("disable = 'MPS201'", "disable must be a list of rules, such as [\"MPS201\"], not 'MPS201'"),
        ("disable = ['MPS210']", "disable: there is no rule 'MPS210', the nearest is MPS201"),
        ("disable = [3]", "disable: there is no rule 3, `anymps explain` lists them"),
        ("fail-on = 'warn'", "fail-on must be error, warning, info or never, not 'warn'"),
        ("severity = 'error'", "severity must be a table, such as { MPS201 = \"error\" }, not 'error'"),
        ("severity = { MPS201 = 'bad' }", "severity.MPS201 must be error, warning or info, not 'bad'"),
        ("severity = { MPS2 = 'info' }", "severity: there is no rule 'MPS2', the nearest is MPS201"),
        (
            "per-file-disable = ['MPS201']",
            'per-file-disable must be a table, such as { "tests/*" = ["MPS201"] }, not [\'MPS201\']',
        ),
        ("baseline = ''", "baseline must be a non-empty string, not ''"),
    ],
)
def test_wrong_settings(tmp_path: Path, text: str, problem: str) -> None:
    """An unknown key or a value that does not fit is one line that names the key and what would be right."""
    with pytest.raises(UsageError) as error:
        settings(tmp_path, f"[tool.anymps]\n{text}\n")
    assert str(error.value) == f"{tmp_path / 'pyproject.toml'}: [tool.anymps] {problem}"


def test_wrong_mac_and_wrong_files(tmp_path: Path) -> None:
    """A Mac that was never sold and a file that is not TOML are one line too."""
    file = tmp_path / "pyproject.toml"
    with pytest.raises(UsageError) as error:
        settings(tmp_path, "[tool.anymps]\nmac = 'M1 9GB'\n")
    assert str(error.value).startswith(f"{file}: [tool.anymps] mac: ")
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError) as error:
        settings(tmp_path, "[tool.anymps\n")
    assert str(error.value).startswith(f"{file} is not valid TOML: ")
    with pytest.raises(UsageError) as error:
        settings(tmp_path, "[tool]\nanymps = 3\n")
    assert str(error.value) == f"{file}: [tool.anymps] is not a table"


def test_settings_choose_findings() -> None:
    """A rule is left out everywhere or in some files, or given another severity, which sorts it anew."""
    found = [finding("MPS401"), finding("MPS201"), finding("MPS205"), finding("MPS205", file=f"{ROOTS[0]}/tests/a.py")]
    chosen = Settings(
        PLAIN.root,
        severity={"MPS205": Severity.ERROR, "MPS401": Severity.INFO},
        disable=frozenset({"MPS201"}),
        per_file_disable={"tests/*": frozenset({"MPS205"})},
    )
    selection = select(found, chosen, ROOTS)
    assert [(kept.id, kept.severity) for kept in selection.findings] == [
        ("MPS205", Severity.ERROR),
        ("MPS401", Severity.INFO),
    ]
    assert (selection.suppressed, selection.known, selection.gone) == ((), (), ())


# --- comments


@pytest.mark.parametrize(
    ("source", "left_out"),
    [
        ("x = loss.item()  # anymps: ignore[MPS201] shown to the user", True),
        ("x = loss.item()  #anymps:ignore[ MPS204 , MPS201 ]  shown", True),
        ("x = loss.item()  # noqa  # anymps: ignore[MPS201] shown", True),
        (").item()  # anymps: ignore[MPS201] half a statement", True),
        ("x = loss.item()  # anymps: ignore[MPS201]", False),  # no reason
        ("x = loss.item()  # anymps: ignore[MPS201]  # noqa", False),
        ("x = loss.item()  # anymps: ignore[MPS204] another rule", False),
        ("x = loss.item()  # anymps: ignore[MPS201, MPS999] one of them is no rule", False),
        ("x = loss.item()  # anymps: ignore because", False),
        ('x = loss.item(), "# anymps: ignore[MPS201] a text"', False),
        ("x = loss.item()", False),
    ],
)
def test_comments(source: str, left_out: bool) -> None:
    """A comment in the recorded line that names its rule and gives a reason leaves a finding out; no file is needed."""
    found = finding(source=source)
    selection = select([found], PLAIN, ROOTS)
    assert (selection.findings, selection.suppressed) == (((), (found,)) if left_out else ((found,), ()))


STATEMENT = """\
def main():
    total = sum(
        loss.item()
        for loss in losses
    )  # anymps: ignore[MPS201] once
    if total:  # anymps: ignore[MPS204] not this one
        loss.item()
    # anymps: ignore[MPS201] a line of its own belongs to no statement
    loss.item()
"""


@pytest.mark.parametrize(("line", "left_out"), [(3, True), (7, False), (9, False)])
def test_comments_in_a_statement_of_several_lines(line: int, left_out: bool) -> None:
    """The comment may stand in any line of the statement, but not in the head of a block around it or above it."""
    selection = select(find(recording("loss.item()", line, STATEMENT)), PLAIN, ROOTS)
    assert [hidden.id for hidden in selection.suppressed] == (["MPS201"] if left_out else [])


@pytest.mark.parametrize("text", ["x = 1\n", "def (\n\nloss.item()\n", ""])
def test_only_the_recorded_line_counts_where_no_statement_is_known(text: str) -> None:
    """A file that was no Python, or that could not be read, has no statements."""
    assert select(find(recording("loss.item()", 3, text)), PLAIN, ROOTS).suppressed == ()


@pytest.mark.parametrize(
    ("comment", "what"),
    [
        ("# anymps: ignore[MPS201]", "The comment gives no reason for leaving out MPS201."),
        ("# anymps: ignore[MPS210] why", "The comment names MPS210, which is not a rule; the nearest is MPS201."),
        ("# anymps: ignore[waits] why", "The comment names waits, which is not a rule."),
        ("# anymps: ignore", "The comment names no rule."),
        ("# anymps: ignore[MPS201] why  # anymps: ignore[] why", "The comment names no rule."),
        ("# anymps: ignore[MPS201] why", ""),
        ("# a comment", ""),
    ],
)
def test_comments_that_cannot_be_followed(comment: str, what: str) -> None:
    """MPS001: a comment without a reason or with a rule that does not exist is a finding of its own."""
    found = find(recording(f"x = loss.item()  {comment}"))
    notices = [each for each in found if each.id == "MPS001"]
    assert [notice.what for notice in notices] == ([what] if what else [])
    selection = select(found, PLAIN, ROOTS)
    assert [kept.id for kept in selection.findings if kept.id == "MPS001"] == ["MPS001"] * len(notices)


# --- baseline


def test_baseline_knows_findings_by_their_text(tmp_path: Path) -> None:
    """A known finding may move to another line or another machine; another text, function, file or rule is new."""
    path = tmp_path / "known.json"
    assert write_baseline(path, [finding(), finding()], ROOTS) == 2
    entry = {"id": "MPS201", "file": "train.py", "function": "main", "source": "loss.item()", "count": 2}
    assert json.loads(path.read_text()) == {"version": 1, "findings": [entry]}
    known = [finding(line=70), finding(source="  loss.item()  ", file="/ci/work/train.py")]
    new = [
        finding("MPS202"),
        finding(source="loss.tolist()"),
        finding(function="test"),
        finding(file=f"{ROOTS[0]}/other.py"),
    ]
    selection = select([*new, *known], PLAIN, (*ROOTS, "/ci/work"), read_baseline(path))
    assert set(selection.findings) == set(new)
    assert list(selection.known) == known
    assert selection.gone == ()


def test_baseline_counts() -> None:
    """One more of the same is new; fewer of them, or none, are named as gone."""
    known = Known("MPS201", "train.py", "main", "loss.item()")
    selection = select([finding(line=3), finding(line=9)], PLAIN, ROOTS, Counter({known: 1}))
    assert [kept.site.line for kept in selection.findings] == [9]
    selection = select([finding()], PLAIN, ROOTS, Counter({known: 2}))
    assert (selection.findings, selection.gone) == ((), (known,))


def test_writing_a_baseline_touches_no_other_file(tmp_path: Path) -> None:
    """A file of the user's that is named like the baseline stays as it is, and so do the baseline's permissions."""
    path, beside = tmp_path / "known.json", tmp_path / "known.json.new"
    path.touch()
    path.chmod(0o640)
    beside.write_text("the user's")
    assert write_baseline(path, [finding()], ROOTS) == 1
    assert beside.read_text() == "the user's"
    assert (len(read_baseline(path)), path.stat().st_mode & 0o777) == (1, 0o640)


def test_baseline_files(tmp_path: Path) -> None:
    """A baseline that is missing, of another version, no baseline, or that cannot be written is one line."""
    path = tmp_path / "known.json"
    for text, problem in (
        (None, f"there is no baseline {path}: make it with --write-baseline"),
        ("hello", f"{path} is not a baseline: make one with --write-baseline"),
        ("[]", f"{path} is not a baseline: make one with --write-baseline"),
        ('{"version": 1, "findings": [{}]}', f"{path} is not a baseline: make one with --write-baseline"),
        ('{"version": 2, "findings": []}', f"{path} has version 2 of a baseline, this anymps reads 1"),
    ):
        if text is not None:
            path.write_text(text)
        with pytest.raises(UsageError) as error:
            read_baseline(path)
        assert str(error.value) == problem
    with pytest.raises(UsageError) as error:
        write_baseline(tmp_path / "no" / "known.json", [], ROOTS)
    assert str(error.value) == f"the baseline {tmp_path}/no/known.json cannot be written: No such file or directory"


# --- the commands


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the recording `run.anymps` of a loop that reads its loss, and where we are."""
    monkeypatch.chdir(tmp_path)
    recording("loss.item()", writer=RecordingWriter(tmp_path / "run.anymps", {"directory": "/home/me/project"}))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "table", "status"),
    [
        ([], "", 0),
        (["--fail-on", "warning"], "", 3),
        (["--fail-on", "info"], "", 3),
        (["--fail-on", "error"], "", 0),
        ([], "fail-on = 'warning'", 3),
        (["--fail-on", "never"], "fail-on = 'warning'", 0),
        (["--fail-on", "error"], "severity = { MPS201 = 'error' }", 3),
        (["--fail-on", "info"], "disable = ['MPS201']", 0),
    ],
)
def test_failing(project: Path, words: list[str], table: str, status: int) -> None:
    """`--fail-on`, or the project's `fail-on`, gives 3 from its severity on; the option wins."""
    (project / "pyproject.toml").write_text(f"[tool.anymps]\n{table}\n")
    assert main(["report", "run.anymps", *words]) == status


def test_baseline_of_the_commands(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A baseline is written, then its findings neither are shown nor fail; what is gone is named."""
    words = ["report", "run.anymps", "--baseline", "known.json", "--fail-on", "info"]
    assert main([*words, "--write-baseline"]) == 0
    out, err = capsys.readouterr()
    assert "MPS201" in out
    assert err == "anymps: known.json now lists 1 finding\n"
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "MPS201" not in out
    assert err == "anymps: findings left out: 1 known (known.json)\n"
    write_baseline(project / "known.json", [finding(), finding("MPS205", "torch.mps.synchronize()")], ROOTS)
    assert main(words) == 0
    assert capsys.readouterr().err == (
        "anymps: findings left out: 1 known (known.json)\n"
        "anymps: in known.json, but not in this run: MPS205 at train.py main: torch.mps.synchronize()\n"
    )


def test_comments_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What a comment leaves out is not shown, but counted."""
    judge = Judge(Path("train.py"), Asked(fail_on="info"))
    run = recording("loss.item()  # anymps: ignore[MPS201] shown to the user")
    assert judge.conclude(run, judge.judge(run)) == 0
    assert capsys.readouterr() == ("", "anymps: findings left out: 1 by a comment in the code\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--write-baseline"], "--write-baseline needs --baseline FILE, or `baseline` under [tool.anymps]"),
        (["--baseline", "no.json"], "there is no baseline no.json: make it with --write-baseline"),
        (["--baseline", "no/x.json", "--write-baseline"], "no/x.json cannot be written: there is no directory {}/no"),
    ],
)
def test_mistakes(project: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    """A mistake in the options is one line and 2, before anything is shown."""
    assert main(["report", "run.anymps", *words]) == 2
    assert capsys.readouterr() == ("", f"anymps: {text.format(project)}\n")


@pytest.mark.parametrize(
    ("given", "variable", "mac"), [(None, "", "M1 8GB"), ("M2 8GB", "", "M2 8GB"), (None, "M3 8GB", None)]
)
def test_the_mac_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, variable: str, mac: str | None
) -> None:
    """A run is on the settings' Mac, unless the option or the variable, which the device reads, names another."""
    import anymps
    from anymps._command_settings import RunSettings
    from anymps.commands._session import RunSession
    from anymps.commands._target import Target

    (tmp_path / "pyproject.toml").write_text("[tool.anymps]\nmac = 'M1 8GB'\n")
    macs: list[object] = []
    monkeypatch.setenv("ANYMPS_MAC", variable)
    monkeypatch.setattr(anymps, "enable", lambda mac, **more: macs.append(mac))
    monkeypatch.setattr(anymps, "record", lambda *_, **__: contextlib.nullcontext())
    RunSession(RunSettings(mac=given, children=False)).start(Target(str(tmp_path / "train.py")))
    assert macs == [mac]
