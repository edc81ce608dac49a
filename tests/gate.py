"""`pytest --mps` on a small suite, in this process or in one of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

import anymps.findings
import anymps.metal
import anymps.pytest_plugin._start
import processes
from anymps.record import Suite

PLUGIN = ("-p", "anymps.pytest_plugin")


class Gate:
    """Runs pytest in a directory of its own and answers in texts."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def write(self, **files: str) -> None:
        """Python files by name; each is loaded anew by the next run."""
        self.pytester.makepyfile(**files)

    def run(self, *arguments: str) -> pytest.RunResult:
        """In this process, with the device that it has. Nothing is kept between runs but what the tests write.

        Tests that never use mps may pass, unless `--no-mps-allow-unused` says otherwise, and failing tests are not run
        again without mps, unless `--mps-rerun` does.
        """
        # A KeyboardInterrupt of a test there must not end this process.
        return self.pytester.runpytest_inprocess(
            *PLUGIN,
            "--mps",
            "--mps-allow-unused",
            "--no-mps-rerun",
            "-p",
            "no:cacheprovider",
            *arguments,
            no_reraise_ctrlc=True,
        )

    def run_alone(self, *arguments: str, plugins: str = "anymps.pytest_plugin", mps: bool = True) -> pytest.RunResult:
        """In a process of its own, with no plugin but these."""
        self._environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_PLUGINS=plugins)
        flag = ["--mps"] if mps else []
        return self.pytester.run(sys.executable, "-m", "pytest", *flag, *arguments)

    def run_installed(self, site: str, *arguments: str) -> pytest.RunResult:
        """In a process of its own that finds its plugins itself, in the folder `site` too."""
        environment = self._environment(site)
        environment.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
        return self.pytester.run(sys.executable, "-m", "pytest", *arguments)

    def _environment(self, site: str = "", **variables: str) -> pytest.MonkeyPatch:
        environment = self.pytester._monkeypatch
        clean = processes.clean_environment()
        for name in set(os.environ) - set(clean):
            environment.delenv(name)
        paths = [str(self.path / site)] if site else []
        variables |= {"PYTHONPATH": os.pathsep.join([*paths, clean["PYTHONPATH"]]), "ANYMPS_MAC": processes.MAC}
        for name, value in variables.items():
            environment.setenv(name, value)
        return environment

    @property
    def manifest(self) -> Path:
        """The manifest `m.txt`."""
        return self.path / "m.txt"

    def entries(self) -> list[str]:
        """Its lines without comments."""
        return [line for line in self.manifest.read_text().splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="session")
def loaded(virtual_device: torch.device) -> None:
    """What an inner run would load first is loaded: pytester takes it out of the process again, and torch minds."""
    assert anymps.findings
    assert anymps.pytest_plugin._start
    assert Suite
    assert anymps.metal.ShaderLibrary  # and so its operators, which torch defines once
    x = torch.ones(1, device=virtual_device)
    torch.testing.assert_close(x, x)


@pytest.fixture
def gate(loaded: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """An empty directory to run pytest in."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("ANYMPS_CHECK_SHADERS", "0")  # what a run sets is gone after the test
    monkeypatch.setenv("ANYMPS_CHECK_NUMBERS", "")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # no plugin but ours, under the one name that it has here
    return Gate(pytester)


def section(result: pytest.RunResult) -> list[str]:
    """The lines of the section at the end; none if there is no such section."""
    lines: list[str] = []
    inside = False
    for line in result.outlines:
        if line.startswith("=="):
            inside = line.strip("=").startswith(" mps: ")
        elif inside:
            lines.append(line)
    return lines
