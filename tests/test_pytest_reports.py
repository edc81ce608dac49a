"""`pytest --mps --mps-report`: the session in the forms of `anymps report`."""

from __future__ import annotations

import json

import pytest

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
    assert [it["ruleId"] for it in found] == ["MPS101"]
    place = found[0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("test_it.py", 4)
    assert [it["id"] for it in json.loads((gate.path / "m.json").read_text())["findings"]] == ["MPS101"]
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
    gate.run("--mps-recording", "run.anymps", "--mps-report", "junit=j.xml")
    assert (gate.path / "run.anymps").exists()
    assert "MPS101" in (gate.path / "j.xml").read_text()


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            "pdf=x",
            "--mps-report there is no form 'pdf': terminal, html, trace, json, sarif, github, junit",
        ),
        ("html", "--mps-report 'html' names no file: write FORM=FILE, such as html=report.html"),
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


def test_workers_are_refused(gate: Gate) -> None:
    """With pytest-xdist there is one recording a worker and no report of all: one line says what to do."""
    pytest.importorskip("xdist")
    gate.write(test_it=SUITE)
    result = gate.run_alone("--mps-report", "html=x.html", "-n", "2", plugins="xdist.plugin,anymps.pytest_plugin")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line][-1] == (
        "ERROR: --mps-report needs one process, and pytest-xdist starts several: leave out -n, or take "
        "--mps-recording run.anymps, which writes one recording a worker, and `anymps report` for each"
    )
    assert (
        gate.run_alone("--mps-report", "html=x.html", "-n", "0", plugins="xdist.plugin,anymps.pytest_plugin").ret
        == pytest.ExitCode.TESTS_FAILED
    )
