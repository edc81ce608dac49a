"""A wheel with a native core runs where there is no compiler."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from anymps.device._build import copy_core
from processes import PATIENCE, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; torch and what else it needs are those of this one."""
    home = tmp_path_factory.mktemp("wheel")
    core = copy_core(home / "cores")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = [*pip, "wheel", "--no-deps", "--wheel-dir", str(home), str(ROOT)]
    subprocess.run(built, check=True, env={**clean_environment(), "ANYMPS_CORES": str(core.parent)})
    (wheel,) = home.glob("*.whl")
    assert not wheel.name.endswith("-none-any.whl")
    venv.create(home / "venv", symlinks=True)
    python = home / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
    (packages,) = home.glob("venv/lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return home


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed command with an empty cache, and a path that leads to no compiler."""
    return subprocess.run(
        [str(home / "venv" / "bin" / "anymps"), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=home,
        env={
            **clean_environment(),
            "PATH": str(home / "venv" / "bin"),
            "ANYMPS_CACHE_DIR": str(home / "cache"),
            "PYTHONPATH": "",
        },
    )


def test_the_demo_runs_without_a_compiler(home: Path) -> None:
    """Nothing is built, and the report is there."""
    answer = run(home, "run", "--mac", "M3 Pro 18GB", str(ROOT / "examples" / "issue_classifier.py"))
    assert answer.returncode == 0, answer.stderr
    assert "native core" not in answer.stderr
    assert "M3 Pro 18GB" in answer.stdout + answer.stderr
    assert not list((home / "cache").glob("native/*"))


def test_doctor_knows_where_the_core_is_from(home: Path) -> None:
    """It names the core, and warns of what only shaders need."""
    lines = run(home, "doctor").stdout.splitlines()
    (core,) = (line for line in lines if "native core" in line)
    assert core.endswith("came with this installation")
    assert any("none found: install one (g++, clang++)" in line for line in lines)
