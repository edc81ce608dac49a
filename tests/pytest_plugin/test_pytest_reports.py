"""`pytest --mps --mps-report`: the session in the forms of `anymps report`."""

from __future__ import annotations

import json

import pytest

from anymps.record import Recording
from gate import Gate, gate, loaded, section

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

SUITE = """\
import torch

def test_missing():
    torch.linalg.eig(torch.ones(2, 2, device="mps"))

def test_good():
    assert torch.ones(2, device="mps").sum().item() == 2
"""


def test_forms(gate: Gate) -> None:
    """Each form is written at the end, red or green, with what the tests did; the recording itself is not kept."""
    gate.write(test_it=SUITE)
    result = gate.run("--mps-report", "sarif=mps.sarif", "--mps-report", "html=mps.html", "--mps-report", "json=m.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    sarif = json.loads((gate.path / "mps.sarif").read_text())
    found = sarif["runs"][0]["results"]
    assert [told["ruleId"] for told in found] == ["MPS101"]
    place = found[0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("test_it.py", 4)
    assert [finding["id"] for finding in json.loads((gate.path / "m.json").read_text())["findings"]] == ["MPS101"]
    assert "torch.linalg.eig" in (gate.path / "mps.html").read_text()
    assert section(result)[-3:] == [
        f"mps report (sarif): {gate.path}/mps.sarif",
        f"mps report (html): {gate.path}/mps.html",
        f"mps report (json): {gate.path}/m.json",
    ]
    assert sorted(path.name for path in gate.path.iterdir() if path.suffix not in (".py", "")) == [
        "m.json",
        "mps.html",
        "mps.sarif",
    ]


def test_with_a_recording(gate: Gate) -> None:
    """A recording that is to be kept is kept, and the report is made from it."""
    gate.write(test_it=SUITE)
    (gate.path / "sub").mkdir()
    result = gate.run("--mps-recording", "run.anymps", "--mps-report", "github=sub/../g.txt")
    assert (gate.path / "run.anymps").exists()
    assert section(result)[-1] == f"mps report (github): {gate.path}/g.txt"
    assert "MPS101" in (gate.path / "g.txt").read_text()


SPOILT = """\
import html
import json
import os
import sys

import rich
import torch

def test_its_own():
    assert rich.MINE
    assert torch.ones(2, device="mps").sum().item() == 2

def test_spoils():
    html.escape = json.dumps = os.replace = os.fsync = lambda *given, **named: 1 / 0
    for name in [it for it in sys.modules if it.partition(".")[0] in ("html", "json", "jinja2", "markupsafe", "rich")]:
        del sys.modules[name]
    os.mkdir("gone")
    os.chdir("gone")
"""


def test_a_suite_that_spoils_python(gate: Gate) -> None:
    """It replaces functions, has a module named like a package of ours, and removes others: the report is whole."""
    (gate.path / "lib").mkdir()
    (gate.path / "lib" / "rich.py").write_text("MINE = True")
    gate.write(test_it=SPOILT, conftest="import sys\nsys.path.insert(0, 'lib')")
    result = gate.run_alone("-p", "no:cacheprovider", "--mps-report", "html=m.html", "--mps-report", "json=m.json")
    assert result.ret == pytest.ExitCode.OK, result.stdout.str() + result.stderr.str()
    assert json.loads((gate.path / "m.json").read_text())["findings"] == []
    assert "test_it.py" in (gate.path / "m.html").read_text()


EXPECTING = """\
import pytest, torch

def missing():
    return torch.linalg.eig(torch.ones(2, 2, device="mps"))

def float64():
    return torch.ones(2, device="mps", dtype=torch.float64)

def devices():
    return torch.ones(2, device="mps") + torch.ones(2)

def test_listed():
    missing()

@pytest.mark.mps_fails(raises=TypeError)
def test_marked():
    float64()

def test_caught():
    with pytest.raises(RuntimeError):
        devices()
"""


def levels(gate: Gate, *arguments: str) -> list[tuple[int, str, str]]:
    """Line, level and reason of each result in SARIF."""
    gate.run("--mps-report=sarif=s.json", "--mps-report=github=g.txt", *arguments)
    (run,) = json.loads((gate.path / "s.json").read_text())["runs"]
    return sorted(
        (
            result["locations"][0]["physicalLocation"]["region"]["startLine"],
            result["level"],
            result.get("suppressions", [{"justification": ""}])[0]["justification"],
        )
        for result in run["results"]
    )


def test_reports_know_the_manifest(gate: Gate) -> None:
    """What the manifest, a mark or a test expects is suppressed, not annotated; another test makes it news."""
    gate.write(test_it=EXPECTING)
    gate.run("--mps-manifest=m.txt", "--mps-update-manifest")
    assert gate.entries() == ["test_it.py::test_listed NotImplementedError"]
    assert levels(gate, "--mps-manifest=m.txt") == [
        (4, "note", "expected by m.txt:6 (test_it.py::test_listed)"),
        (7, "note", "expected by the mark mps_fails (test_it.py::test_marked)"),
        (10, "note", "caught by a test that passed (test_it.py::test_caught)"),
    ]
    assert len((gate.path / "g.txt").read_text().splitlines()) == 1
    gate.write(test_more="import test_it\n\ndef test_new():\n    test_it.missing()\n")
    assert levels(gate, "--mps-manifest=m.txt")[0] == (4, "error", "")
    assert [line.split("::")[1].split(",")[:2] for line in (gate.path / "g.txt").read_text().splitlines()[1:]] == [
        ["error file=test_it.py", "line=4"]
    ]


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            "pdf=x",
            "--mps-report: there is no format 'pdf'; the formats are terminal, html, markdown, json, sarif, github",
        ),
        ("html", "--mps-report: 'html' names no file: write FORMAT=FILE, such as html=report.html"),
        ("github=-", "--mps-report github=-: standard output is pytest's own, name a file"),
        ("html=none/x.html", "--mps-report: {path}/none/x.html cannot be written: there is no directory {path}/none"),
    ],
)
def test_mistakes_are_one_line(gate: Gate, report: str, text: str) -> None:
    """What can never be written ends the run before it starts."""
    gate.write(test_it=SUITE)
    result = gate.run("--mps-report", report)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line][-1] == "ERROR: " + text.format(path=gate.path)


def test_workers_are_joined(gate: Gate) -> None:
    """With pytest-xdist there is one recording and one report, of all workers together, and nothing is left beside."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    gate.write(test_it=SUITE, test_other=SUITE)
    arguments = ("--mps-report", "json=m.json", "--mps-recording", "r.db", "-n", "2", "--dist", "loadfile")
    result = gate.run_alone(*arguments, plugins="xdist.plugin,anymps.pytest_plugin")
    result.assert_outcomes(passed=2, failed=2)
    report = json.loads((gate.path / "m.json").read_text())
    assert {(refusal["site"]["file"], refusal["site"]["line"]) for refusal in report["refusals"]} == {
        (str(gate.path / name), 4) for name in ("test_it.py", "test_other.py")
    }
    assert report["limits"][1] == (
        "Joined from 2 processes (gw0, gw1), which are shown one after another: times and memory are those of one "
        "process at a time."
    )
    assert sorted(path.name for path in gate.path.glob("r*")) == ["r.db"]
    with Recording.open(gate.path / "r.db") as recording:
        assert (recording.meta["script"], recording.meta["ending"]) == ("pytest", {"status": 1})
        assert [part.name for part in recording.parts] == ["gw0", "gw1"]


def test_a_worker_that_crashes_loses_nobody_elses_recording(gate: Gate) -> None:
    """The report holds what a worker did before it was killed, and what the one in its place did."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    gate.write(test_it=SUITE + "def test_crash():\n    import os\n    os._exit(1)\n")
    gate.write(test_last="import torch\ndef test_it():\n    torch.linalg.eigvals(torch.ones(2, 2, device='mps'))\n")
    result = gate.run_alone("--mps-report", "json=m.json", "-n", "1", plugins="xdist.plugin,anymps.pytest_plugin")
    result.assert_outcomes(passed=1, failed=3)
    report = json.loads((gate.path / "m.json").read_text())
    assert [(refusal["operator"], refusal["site"]["line"]) for refusal in report["refusals"]] == [
        ("aten::linalg_eig", 4),
        ("aten::_linalg_eigvals", 3),
    ]
    assert [(part["name"], part["complete"]) for part in report["run"]["parts"]] == [("gw0", False), ("gw1", True)]
    assert report["limits"][2] == (
        "The recording of gw0 stops in the middle of the run: this report covers the run up to there."
    )
