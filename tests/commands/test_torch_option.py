"""`--torch RELEASE` of `run`, `bench` and `plan`: which texts it takes, and where the release goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anymps.findings import Story
from anymps.forecast import forecast
from anymps.record import Recording, RecordingWriter, join
from anymps.report import render_terminal
from anymps.report._predicted import predicted_in_short
from anymps.report.plan._choice_words import choice_table
from plans import planned
from processes import run_command
from timed_steps import Steps

NOTE = "These are the times of torch 2.11, for the calls that torch 2.13.0 makes here."
SCRIPT = """
import torch
x = torch.ones(4, 4, device="mps", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for step in range(4):
    (x @ x).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("new", "not a release of torch: 'new'"),
        ("1.9", "no times are predicted for torch 1.9: the data begin with torch 1.13"),
        ("2.16", "no times are predicted for torch 2.16: the newest known release is 2.15"),
    ],
)
@pytest.mark.parametrize("command", ["run", "bench", "plan"])
def test_what_is_no_release(command: str, text: str, reason: str) -> None:
    """One line, and nothing runs."""
    result = run_command("-m", "anymps", command, "--torch", text, "train.py")
    assert (result.status, result.out, result.err) == (2, "", f"anymps: --torch: {reason}\n")


def test_a_run_notes_the_release(tmp_path: Path) -> None:
    """Its report and every later one of its recording have that release's times."""
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    words = ("run", "--torch", "2.11.0", "--record", "run.anymps", "--report", "json=report.json", "train.py")
    result = run_command("-m", "anymps", *words, cwd=tmp_path)
    assert result.status == 0, result.err
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert recording.meta["times_of"] == "2.11"
        found = forecast(recording)
        assert (found.torch, found.made_by) == ("2.11", recording.meta["torch_version"])


def test_the_note_is_in_the_report() -> None:
    """With the recording's own release there is none."""
    for times_of, told in (({"times_of": "2.11"}, True), ({}, False)):
        steps = Steps(**times_of)
        for _ in range(3):
            steps.product(10)
            steps.end()
        recording = steps.close()
        assert (NOTE in " ".join(render_terminal(Story.of(recording), ()).split())) is told
        assert predicted_in_short(Story.of(recording)).startswith(
            "A step with torch 2.11: about " if told else "A step: about "
        )


def test_a_joined_recording_keeps_the_release() -> None:
    """Which its script's recording alone notes."""
    parts = []
    for number, meta in enumerate(({"times_of": "2.11"}, {})):
        steps = Steps(**meta)
        steps.product(1)
        steps.end()
        parts.append((str(number), steps.close()))
    writer = RecordingWriter.in_memory()
    join(parts, writer)
    writer.close()
    assert writer.recording().meta["times_of"] == "2.11"


def test_a_plan_says_whose_times_they_are() -> None:
    """Below its table."""
    plan = replace(planned(), torch="2.13.0+cpu")
    assert NOTE not in choice_table(plan).rest
    assert NOTE in choice_table(replace(plan, times_of="2.11")).rest
