"""A Python without torch, as `pipx` may make one: `anymps doctor` tells in plain words, other commands in one line."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anymps
from anymps._settings import FORMATS
from anymps.record import RecordingBuilder, RecordingWriter
from anymps.rules import NEWEST, OLDEST
from processes import PATIENCE, SOURCE_ROOT

NEEDED = ("click", "rich", "jinja2", "markupsafe", "platformdirs", "markdown_it", "mdurl", "pygments", "tomli")
RELEASES = f"torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


PYTEST = ("_pytest", "pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "typing_extensions")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what anymps depends on besides torch, and pytest."""
    folder = tmp_path_factory.mktemp("bare")
    for name in (*NEEDED, *PYTEST):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            place = Path(spec.origin)
            place = place.parent if spec.submodule_search_locations else place
            (folder / place.name).symlink_to(place)
    return folder


def run(bare: Path, *words: str, main: str = "anymps.commands") -> subprocess.CompletedProcess[str]:
    """`anymps` in a Python that has the standard library, that folder and the sources of anymps; or another `main`."""
    start = f"import sys; sys.path += sys.argv[1:3]; del sys.argv[1:3]; from {main} import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", start, str(bare), str(SOURCE_ROOT), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


def test_doctor(bare: Path) -> None:
    """It says that torch is missing, and what to do; nothing else is needed for that."""
    ran = run(bare, "doctor")
    assert (ran.returncode, ran.stderr) == (1, "")
    lines = ran.stdout.splitlines()
    assert lines[:5] == [
        "mps in torch     torch cannot be used",
        "  because        torch is not installed",
        "mps with anymps  none, until the problems marked BAD below are fixed",
        f"next             install {RELEASES}: pip install torch",
        "next             or install anymps in the environment that has it",
    ]
    assert f"anymps           {anymps.__version__}, Python {platform.python_version()}" in lines
    assert "torch            BAD: not installed" in lines


def test_torch_is_no_dependency() -> None:
    """pip brings it only where the extra `torch` asks for it."""
    needs = [text.replace(" ", "") for text in importlib.metadata.requires("anymps") or []]
    assert {text.partition(";")[2].strip() for text in needs if re.match("torch[<>=;]", text)} == {"extra=='torch'"}
    assert any(text.startswith("click") and "extra" not in text for text in needs)


@pytest.mark.parametrize("words", [["run", "train.py"], ["plan", "train.py"]])
def test_what_needs_torch(words: list[str], bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)")
    ran = run(bare, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"anymps: torch is not installed; install {RELEASES}\n"


def test_the_gate(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pytest --mps` is one line, and without the option a test that wants the device is skipped with a reason."""
    monkeypatch.chdir(tmp_path)
    Path("test_it.py").write_text("def test_it(mps_device):\n    pass\n")
    words = ("-p", "anymps.pytest_plugin", "-p", "no:cacheprovider", "--no-header", "-rs")
    ran = run(bare, *words, "--mps", main="pytest")
    text = f"ERROR: --mps: torch is not installed; install {RELEASES}\n\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (4, "", text)
    ran = run(bare, *words, main="pytest")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "SKIPPED [1] test_it.py:1: needs an mps device: torch is not installed" in ran.stdout


def test_what_needs_none(bare: Path) -> None:
    """Macs, rules and recordings are read without it."""
    assert run(bare, "explain", "MPS202").returncode == 0
    assert run(bare, "--version").stdout == f"anymps {anymps.__version__}\n"


def test_recordings_need_none(bare: Path, tmp_path: Path) -> None:
    """They are shown in each form, several as one, and compared without it."""
    one, two = (str(tmp_path / f"{name}.anymps") for name in ("one", "two"))
    for name in (one, two):
        meta = {"torch_version": "2.13.0", "mac": "M1 8GB", "mac_details": "Apple M1: 8 GB", "virtual": True}
        builder = RecordingBuilder(RecordingWriter(Path(name), {**meta, "source": "native"}))
        builder.entry("aten::add", start_ns=10, duration_ns=5, site=builder.site("a.py", 3, "f", "x + 1"))
        builder.close()
    for form in FORMATS:
        ran = run(bare, "report", one, two, "--format", form, "--output", str(tmp_path / form))
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        assert (tmp_path / form).exists()
    assert run(bare, "diff", one, two).returncode == 0
