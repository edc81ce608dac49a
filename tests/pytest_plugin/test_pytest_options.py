"""The options of `pytest --mps`: each has its twin in the configuration file, and the command line wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps._command_settings import PytestSettings, rows_of
from anymps.pytest_plugin._options import OPTIONS, read_settings
from gate import Gate, gate, loaded

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

# By option: what the configuration file says, what the command line says, and where and how settings show each.
CASES = {
    "mps_mac": ("M1 8GB", ["--mps-mac=M2 16GB"], "mac", "M1 8GB", "M2 16GB"),
    "mps_substrate": ("cuda", ["--mps-substrate=host"], "substrate", "cuda", "host"),
    "mps_require": ("virtual", ["--mps-require=real"], "require", "virtual", "real"),
    "mps_fallback": ("true", ["--no-mps-fallback"], "fallback", True, False),
    "mps_kernels": ("real", ["--mps-kernels=cpu"], "kernels", "real", "cpu"),
    "mps_cuda_as_mps": ("true", ["--no-mps-cuda-as-mps"], "cuda_as_mps", True, False),
    "mps_check_shaders": ("true", ["--no-mps-check-shaders"], "check_shaders", "1", None),
    "mps_check_numbers": ("true", ["--no-mps-check-numbers"], "check_numbers", "some", None),
    "mps_baseline": ("b.txt", ["--mps-baseline=c.txt"], "baseline", "project/b.txt", "c.txt"),
    "mps_allow_unused": ("true", ["--no-mps-allow-unused"], "allow_unused", True, False),
    "mps_report": (
        "html=a.html\n  json=b.json",
        ["--mps-report=sarif=c", "--mps-report=github=d"],
        "reports",
        ("html=a.html", "json=b.json"),
        ("sarif=c", "github=d"),
    ),
    "mps_fail_on_fallback": ("true", ["--no-mps-fail-on-fallback"], "fail_on_fallback", True, False),
    "mps_default_device": ("true", ["--no-mps-default-device"], "default_device", True, False),
    "mps_manifest": ("m.txt", ["--mps-manifest=n.txt"], "manifest", "project/m.txt", "n.txt"),
    "mps_update_manifest": ("true", ["--no-mps-update-manifest"], "update_manifest", True, False),
    "mps_rerun": ("false", ["--mps-rerun"], "rerun", False, True),
    "mps_update_baseline": ("true", ["--no-mps-update-baseline"], "update_baseline", True, False),
    "mps_recording": ("r.db", ["--mps-recording=s.db"], "recording", "project/r.db", "s.db"),
}
# What an option needs beside it.
WITH = {"mps_update_manifest": "mps_manifest = m.txt", "mps_update_baseline": "mps_baseline = b.txt"}


def settings(gate: Gate, ini: str, *arguments: str) -> PytestSettings:
    """As read in a directory whose sub-directory `project` holds the configuration file."""
    project = gate.path / "project"
    project.mkdir(exist_ok=True)
    (project / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    config = gate.pytester.parseconfig("-p", "anymps.pytest_plugin", "-c", "project/pytest.ini", *arguments)
    return read_settings(config, config.option)


def shown(gate: Gate, value: object) -> object:
    """A setting, paths as seen from where pytest was started."""
    return str(value.relative_to(gate.path)) if isinstance(value, Path) else value


def test_every_option_is_tried() -> None:
    """The options of the plugin, the cases here and the settings are the same; a switch `--mps` turns all of it on."""
    assert [option.name for option in OPTIONS] == ["mps", *CASES]
    assert {case[2] for case in CASES.values()} == {row.name for row in rows_of("pytest")}


def test_nothing_else_is_declared(gate: Gate) -> None:
    """All that the plugin declares is in that list, for the command line and for the configuration file."""
    config = gate.pytester.parseconfig("-p", "anymps.pytest_plugin")
    names = {option.name for option in OPTIONS}
    assert {name for name in vars(config.option) if name.startswith("mps")} == names
    assert {name for name in config._parser._inidict if name.startswith("mps")} == names


@pytest.mark.parametrize("name", CASES)
def test_the_file_and_the_command_line(gate: Gate, name: str) -> None:
    """The file's value is taken, its paths beside it; the command line's wins, its paths where pytest was started."""
    said, arguments, setting, from_file, from_command = CASES[name]
    needed = WITH.get(name, "")
    default = getattr(settings(gate, needed), setting)
    assert default == (name == "mps_rerun") or default in (None, ())
    ini = f"{needed}\n{name} = {said}"
    assert from_file == shown(gate, getattr(settings(gate, ini), setting))
    assert from_command == shown(gate, getattr(settings(gate, ini, *arguments), setting))
    if isinstance(from_file, str) and said != "true":
        assert getattr(settings(gate, ini, f"--{name.replace('_', '-')}="), setting) is None
    if name == "mps_report":
        assert settings(gate, ini).reports_from == gate.path / "project"
        assert settings(gate, ini, *arguments).reports_from == gate.path
        assert settings(gate, ini, "--mps-report=").reports == ()


def test_the_device_by_the_file(gate: Gate) -> None:
    """`mps = true` is `--mps`, and `--no-mps` takes it back, with all that the command line says beside it."""
    gate.write(test_it="def test_x(request):\n    assert request.config.pluginmanager.hasplugin('anymps-gate')")
    gate.pytester.makeini("[pytest]\nmps = true\naddopts = --mps-fail-on-fallback")

    def run(*arguments: str) -> pytest.RunResult:
        return gate.pytester.runpytest_inprocess("-p", "anymps.pytest_plugin", "-p", "no:cacheprovider", *arguments)

    run().assert_outcomes(passed=1)
    run("--no-mps").assert_outcomes(failed=1)


@pytest.mark.parametrize("name", ["manifest", "baseline", "recording"])
def test_a_file_that_moves_the_root(gate: Gate, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file outside of a suite without configuration would change the tests' names: refused, unless behind a `=`."""
    (gate.path / "suite").mkdir()
    (gate.path / "suite" / "test_it.py").write_text("def test_it(): pass\n")
    (gate.path / "m.txt").touch()
    monkeypatch.chdir(gate.path / "suite")
    result = gate.run(f"--mps-{name}", "../m.txt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            f"ERROR: --mps-{name} ../m.txt is outside of the suite, and would move pytest's root directory, which "
            f"test ids depend on, to {gate.path}: write --mps-{name}=../m.txt"
        ]
    )
    (gate.path / "m.txt").write_text("")
    if name != "recording":
        gate.run(f"--mps-{name}=../m.txt").assert_outcomes(passed=1)
