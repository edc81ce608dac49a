"""The pages that a newcomer reads first, done as they say: their scripts, their commands, what they promise to show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

from processes import run_command, run_python

pytestmark = pytest.mark.integration
DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The blocks of one language in a page."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_quick_start(tmp_path: Path) -> None:
    """Every command of the quick start ends with 0, and the report begins as the page shows it."""
    (script,) = blocks("quick-start.md", "python")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    torch.save({"weight": torch.ones(2, dtype=torch.float64)}, tmp_path / "model.pt")
    said = {}
    for block in blocks("quick-start.md", "console"):
        for line in block.splitlines():
            tool, *words = shlex.split(line)
            if tool == "anymps":
                ended = run_command("-m", "anymps", *words, cwd=tmp_path)
                assert ended.status == 0, f"{line}\n{ended.err}"
                said[line] = ended.out + ended.err
    (shown,) = blocks("quick-start.md", "text")
    report = said['anymps run --mac "M1 8GB" --record before.anymps train.py']
    assert _without_times(shown) in _without_times(report)
    (front,) = blocks("../README.md", "text")
    assert front == shown
    assert {path.name for path in tmp_path.iterdir()} >= {"after.anymps", "model-mps.pt", "report.html"}
    assert "MPS202" in said["anymps explain MPS202"]


def _without_times(report: str) -> str:
    """The report without predicted times, in which this machine's own code has a part, nor what binds the step.

    That this machine was busy depends on what else runs on it.
    """
    report = re.sub(r"\s+This\s+machine\s+was\s+busy:[^.]*\.[^.]*wider\.", "", report)
    report = re.sub(r"Time on the Mac:[^\n]*\n", "", re.sub(r" on a Mac, \d+ to \d+ % of it", " on a Mac", report))
    span = r"about [\d.]+ (us|ms) \([^)]*\), bound\s+by\s+[^.]*\."
    return re.sub(r"about [\d.]+( us| ms)? to [\d.]+ (us|ms) a step", "about", re.sub(span, "about", report))


def test_the_step_table_that_is_explained(tmp_path: Path) -> None:
    """The table of the page is the quick start's, but for its times."""
    (script,) = blocks("quick-start.md", "python")
    path = tmp_path / "train.py"
    path.write_text(script, encoding="utf-8")
    times = re.compile(r" +(\d[\d.]* (us|ms|s)|<?\d+ %)(?= |$)", re.MULTILINE)
    table = times.sub("", blocks("step-table.md", "text")[0])
    said = times.sub("", run_command("-m", "anymps", "run", "-v", "--mac", "M1 8GB", str(path)).err)
    for row in table.splitlines():
        assert re.sub(" +", " ", row) in re.sub(" +", " ", said), row


def test_the_error_that_is_promised() -> None:
    """The first example of docs/limits.md raises what its last line says."""
    (code,) = blocks("limits.md", "python")
    ended = run_python(code)
    assert ended.err.splitlines()[-1] == code.splitlines()[-1].removeprefix("# ")
