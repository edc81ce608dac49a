"""The shell steps of the action and the pre-commit hook, run here as GitHub and pre-commit run them.

Only pip is a stand-in that writes down what it was asked for: the packages are those of this environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

import anymps
from processes import PATIENCE, clean_environment

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
TESTS = """\
import torch

def test_fine():
    device = torch.accelerator.current_accelerator()
    assert torch.ones(2, device=device).sum() == 2

def test_mode(mps_device):
    torch.mode(torch.ones(2, device=mps_device))
"""
PYTHON = """\
#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then shift 3; printf '%s\\n' "$*" >> "$PIP_LOG"; else exec {python} "$@"; fi
"""


class Runner:
    """A checkout with the steps of the action, and what a runner has in PATH and in its environment."""

    def __init__(self, path: Path, inputs: Mapping[str, str]) -> None:
        self.path = path
        programs = path / "programs"
        programs.mkdir()
        python = shlex.quote(sys.executable)
        self._program(programs / "python", PYTHON.format(python=python))
        self._program(programs / "anymps", f'#!/bin/sh\nexec {python} -m anymps "$@"\n')
        self.inputs = {name: entry["default"] for name, entry in ACTION["inputs"].items()} | dict(inputs)
        self.environment = {
            **{name: value for name, value in clean_environment().items() if name != "PYTEST_ADDOPTS"},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # anymps may be here without its entry point
            "PYTEST_PLUGINS": "anymps.pytest_plugin",
            "GITHUB_OUTPUT": str(path / "output"),
            "GITHUB_ENV": str(path / "environment"),
            "GITHUB_WORKSPACE": str(path),
            "GITHUB_ACTION_PATH": "OWN COMMIT",
            "PIP_LOG": str(path / "pip"),
        }

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one step of the action by its name, with the shell that GitHub takes."""
        (step,) = (step for step in ACTION["runs"]["steps"] if step.get("name") == name)
        own = {variable: self._filled(text) for variable, text in step.get("env", {}).items()}
        return self.run(["bash", "-e", "-c", step["run"]], own)

    def run(self, command: list[str], own: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the checkout."""
        environment = {**self.environment, **(own or {})}
        return subprocess.run(
            command, check=False, cwd=self.path, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ *inputs\.([\w-]+) *\}\}", lambda match: self.inputs[match[1]], text)


def test_the_main_path(tmp_path: Path) -> None:
    """All steps end well for a suite that holds to its manifest, and the SARIF file has the finding."""
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "known failures.txt").write_text("test_it.py::test_mode NotImplementedError\n", encoding="utf-8")
    inputs = {
        "manifest": "known failures.txt",
        "torch-index": "URL",
        "install": '-e ".[test]"',
        "pytest-args": "-k 'fine or mode'",
    }
    runner = Runner(tmp_path, inputs)
    names = ["install", "name the native core", "what mps is here", "test", "report"]
    assert names == [step["name"] for step in ACTION["runs"]["steps"] if "run" in step]
    for name in names:
        ended = runner.step(name)
        assert ended.returncode == 0, f"{name}\n{ended.stdout}\n{ended.stderr}"
        if name == "test":
            assert re.search(r"1 passed, 1 xfailed", ended.stdout), ended.stdout
    assert (tmp_path / "pip").read_text().splitlines() == [
        "torch==2.13.0 --index-url URL",
        "torch==2.13.0 pytest OWN COMMIT",
        "torch==2.13.0 -e .[test]",
    ]
    assert (tmp_path / "environment").read_text() == f"ANYMPS_CACHE_DIR={tmp_path}/.anymps-cache\n"
    key = (tmp_path / "output").read_text()
    assert re.fullmatch(rf"key=python-3\.\d+\.\d+\S*-torch-2\.\S+-anymps-{re.escape(anymps.__version__)}\n", key)
    (run,) = json.loads((tmp_path / "mps.sarif").read_text(encoding="utf-8"))["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["MPS101"]
    assert (tmp_path / "mps.html").is_file()


def test_a_red_suite(tmp_path: Path) -> None:
    """A failure that no manifest lists makes the step fail; the report is written all the same, or says why not."""
    runner = Runner(tmp_path, {"mac": "M1 3GB"})
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    assert runner.step("test").returncode == 4
    assert runner.step("report").stdout.startswith("::notice::no recording")
    runner.inputs["mac"] = "M1 8GB"
    ended = runner.step("test")
    assert (ended.returncode, "1 failed, 1 passed" in ended.stdout) == (1, True), ended.stdout
    assert runner.step("report").returncode == 0
    assert (tmp_path / "mps.sarif").is_file()


def test_a_new_wait(tmp_path: Path) -> None:
    """A line of the library that begins to wait makes the step fail, unless the baseline knows it."""
    (tmp_path / "library.py").write_text("def total(x):\n    return x.sum().item()\n", encoding="utf-8")
    test = "import torch, library\n\ndef test_total(mps_device):\n    library.total(torch.ones(2, device=mps_device))\n"
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    runner = Runner(tmp_path, {"baseline": "known lines.txt"})
    update = [
        *shlex.split("python -m pytest --mps --mps-mac 'M1 8GB' --mps-update-baseline --mps-baseline"),
        "known lines.txt",
    ]
    assert runner.run(update).returncode == 0
    assert "library.py" in (tmp_path / "known lines.txt").read_text(encoding="utf-8")
    assert runner.step("test").returncode == 0
    (tmp_path / "known lines.txt").write_text("", encoding="utf-8")
    ended = runner.step("test")
    assert (ended.returncode, "library.py:2" in ended.stdout) == (1, True), ended.stdout


@pytest.mark.parametrize(("operator", "status"), [("mode", 1), ("sum", 0)])
def test_the_hook(tmp_path: Path, operator: str, status: int) -> None:
    """The hook's entry with a script as its arguments fails where the script would fail on a Mac."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    script = tmp_path / "train.py"
    script.write_text(f"import torch\ntorch.{operator}(torch.ones(2, device='mps'))\n", encoding="utf-8")
    ended = Runner(tmp_path, {}).run([*shlex.split(hook["entry"]), "--mac", "M1 8GB", "train.py"])
    assert ended.returncode == status, ended.stderr
