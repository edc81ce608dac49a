"""`anymps upgrade` on recordings: what it exits with, which releases it shows, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.commands import main
from recordings import bytes_of
from upgrade.test_upgrade import training

BUG = ("MPS607 aten::linear",)
"""Of torch 2.12 and 2.13."""


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """A recording whose line 88 is wrong in torch 2.12 and 2.13, and whose line 31 is refused up to 2.12."""
    path = tmp_path / "run.anymps"
    path.write_bytes(bytes_of(training(faults=BUG)))
    return str(path)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([], 0),
        (["--fail-on", "slower"], 0),
        (["--to", "2.14", "--fail-on", "slower"], 0),
        (["--to", "2.13", "--fail-on", "refused"], 0),
        (["--to", "2.13", "--fail-on", "wrong"], 1),
        (["--to", "2.12", "--fail-on", "wrong"], 1),
        (["--to", "2.12", "--fail-on", "refused"], 1),
        (["--mac", "M1 8GB, macOS 14", "--fail-on", "refused"], 1),
        (["--mac", "M1 8GB, macOS 27", "--fail-on", "refused"], 0),
    ],
)
def test_exit_code(recording: str, words: list[str], status: int) -> None:
    """1 if the release of --to, by default the newest, does that or worse; torch 2.15 has no mps on macOS 14."""
    assert main(["upgrade", *words, recording]) == status


def test_one_step(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two releases and what changes between them."""
    assert main(["upgrade", "--from", "2.12", "--to", "2.14", "--mac", "M3 Pro 18GB, macOS 27", recording]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Use torch 2.14 on macOS 27."
    assert [line.split()[0] for line in lines[2:4]] == ["2.12", "2.14"]
    assert "  -  2.12 -> 2.14: `histc` of int64 becomes native (train.py:31)" in lines
    assert "  -  2.12 -> 2.14: `linear` is right again (MPS607, train.py:88)" in lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "two"], "anymps: --from: 'two' is no release of torch, such as 2.13\n"),
        (["--to", "2.6"], "anymps: torch 2.6 is not known: name a release from 2.7 to 2.15\n"),
        (["--mac", "M9"], 'anymps: there is no Mac "M9"; nearest: M1, M2, M3, M4, M5\n'),
    ],
)
def test_mistakes(recording: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is one line and exit code 2."""
    assert main(["upgrade", *words, recording]) == 2
    assert capsys.readouterr().err == message
