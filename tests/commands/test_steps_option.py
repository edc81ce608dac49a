"""`--steps` means the same to every command: 8 is the first eight steps; only `run` takes steps of a run's middle."""

from __future__ import annotations

import pytest

from anymps._command_settings import FACES, rows_of
from anymps.commands import main
from anymps.commands._options import _Steps

ROWS = {face: row for face in FACES for row in rows_of(face) if row.name == "steps"}
HEADED = ("compare", "fix", "plan")
"""The commands that look at the head of a run."""


def test_which_commands_take_steps() -> None:
    """All four say so in the same words."""
    assert sorted(ROWS) == ["compare", "fix", "plan", "run"]
    assert {row.help.partition(" steps")[0] for row in ROWS.values()} == {"Look only at the first N training"}


@pytest.mark.parametrize("text", ["8", ":8", "0:8"])
@pytest.mark.parametrize("command", ROWS)
def test_the_first_steps(command: str, text: str) -> None:
    """Each command takes each way to write the first eight."""
    found = _Steps(ROWS[command], command).convert(text, None, None)
    assert found == ((0, 8) if command == "run" else 8)


def test_the_middle_of_a_run() -> None:
    """`run` alone can leave out the first steps."""
    assert _Steps(ROWS["run"], "run").convert("10:30", None, None) == (10, 30)


@pytest.mark.parametrize("command", HEADED)
def test_a_range_elsewhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The others say why not, and what to write."""
    assert main((command, "--steps", "10:30", "train.py")) == 2
    assert capsys.readouterr().err == (
        f"anymps: Invalid value for '--steps': '10:30' leaves out steps, and {command} looks at a run from its first "
        f"step on: write a number of steps, such as 30 (anymps {command} --help)\n"
    )


@pytest.mark.parametrize("text", ["0", "-1", "8:8", "30:10", "x", "", ":", "1:x", "8:", "1:2:3"])
@pytest.mark.parametrize("command", ROWS)
def test_no_steps(command: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What means no step at all is refused in one line."""
    more = ", or a range of them, such as 10:30" if command == "run" else ""
    assert main((command, f"--steps={text}", "train.py")) == 2
    assert capsys.readouterr().err == (
        f"anymps: Invalid value for '--steps': {text!r} is not a number of steps, such as 8{more} "
        f"(anymps {command} --help)\n"
    )


def test_too_many_for_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """A plan keeps each step of its measurement."""
    assert main(("plan", "--steps", "1001", "train.py")) == 2
    assert capsys.readouterr().err == (
        "anymps: Invalid value for '--steps': '1001' is more than 1,000 steps (anymps plan --help)\n"
    )
