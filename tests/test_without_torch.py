"""A Python without torch, as `pipx` may make one: `anymps doctor` tells in plain words, other commands in one line."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import anymps
from anymps.rules import NEWEST, OLDEST
from processes import PATIENCE, SOURCE_ROOT

NEEDED = ("click", "rich", "jinja2", "markupsafe", "platformdirs", "markdown_it", "mdurl", "pygments", "tomli")
RELEASES = f"torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what anymps depends on besides torch."""
    folder = tmp_path_factory.mktemp("bare")
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            (folder / name).symlink_to(place)
    return folder


def run(bare: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`anymps` in a Python that has the standard library, that folder and the sources of anymps."""
    start = (
        "import sys; sys.path += sys.argv[1:3]; del sys.argv[1:3]; from anymps.commands import main; sys.exit(main())"
    )
    command = [sys.executable, "-I", "-S", "-c", start, str(bare), str(SOURCE_ROOT), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


def test_doctor(bare: Path) -> None:
    """It says that torch is missing, and what to do; nothing else is needed for that."""
    ran = run(bare, "doctor")
    assert (ran.returncode, ran.stderr) == (1, "")
    lines = ran.stdout.splitlines()
    assert lines[:4] == [
        "mps in torch     torch cannot be used",
        "  because        torch is not installed",
        "mps with anymps  none, until what is marked BAD below is put right",
        f"next             install {RELEASES}: pip install torch",
    ]
    assert f"anymps           {anymps.__version__}, Python {platform.python_version()}" in lines
    assert "torch            BAD: not installed" in lines


@pytest.mark.parametrize("words", [["run", "train.py"], ["plan", "train.py"]])
def test_what_needs_torch(words: list[str], bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)")
    ran = run(bare, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"anymps: torch is not installed; install {RELEASES}\n"


def test_what_needs_none(bare: Path) -> None:
    """Macs, rules and recordings are read without it."""
    assert run(bare, "explain", "MPS202").returncode == 0
    assert run(bare, "--version").stdout == f"anymps {anymps.__version__}\n"
