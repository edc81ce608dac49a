"""`pytest --mps` in processes of its own: the start of a real run, pytest-xdist, forks, torch's own test classes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gate import Gate, gate, loaded, section

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.integration

SUITE = """\
    import pytest, torch

    @pytest.mark.parametrize("n", range(6))
    def test_eig(n):
        if n % 2:
            torch.linalg.eig(torch.ones(2, 2, device="mps"))

    def test_gone_or_not():
        pass
"""


def test_the_device_is_there_before_anything_else(gate: Gate) -> None:
    """conftest and test modules find mps available when they are imported; warnings as errors change nothing."""
    gate.pytester.makeconftest("import torch\nassert torch.backends.mps.is_available()\n")
    gate.write(
        test_it="""\
            import torch
            DEVICE = torch.accelerator.current_accelerator()

            def test_device():
                assert DEVICE.type == "mps" and torch.ones(1, device=DEVICE).item() == 1
        """
    )
    result = gate.run_alone("-W", "error", "--strict-markers", "--strict-config")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["anymps: VIRTUAL mps device: M3 Pro 18GB, torch *"])


def test_without_the_option_nothing_is_loaded(gate: Gate) -> None:
    """The plugin alone loads neither torch nor a part of anymps that needs time."""
    gate.write(
        test_it="""\
            import sys

            def test_nothing():
                loaded = {name for name in sys.modules if name.split(".")[0] in ("anymps", "torch")}
                assert loaded == {
                    "anymps", "anymps._command_settings", "anymps._errors", "anymps._lazy", "anymps._paths",
                    "anymps._setting_row", "anymps._settings", "anymps._version",
                    "anymps.pytest_plugin", "anymps.pytest_plugin._fixtures", "anymps.pytest_plugin._options"}
        """
    )
    gate.run_alone(mps=False).assert_outcomes(passed=1)


def test_the_entry_point(gate: Gate) -> None:
    """An installed anymps is found by pytest itself, and `-p no:anymps` takes it away with its options."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    declared = re.findall(r'(?ms)^\[project.entry-points.pytest11\]\n(\w+) = "([\w.]+)"', project.read_text())
    assert declared == [("anymps", "anymps.pytest_plugin")]
    information = gate.path / "site" / "anymps-0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: anymps\nVersion: 0\n")
    (information / "entry_points.txt").write_text("[pytest11]\nanymps = anymps.pytest_plugin\n")
    gate.write(test_it="def test_x(request):\n    assert request.config.pluginmanager.hasplugin('anymps')")
    gate.run_installed("site", "--mps", "test_it.py").assert_outcomes(passed=1)
    gate.run_installed("site", "test_it.py").assert_outcomes(passed=1)
    gate.run_installed("site", "-p", "no:anymps", "test_it.py").assert_outcomes(failed=1)
    result = gate.run_installed("site", "-p", "no:anymps", "--mps", "test_it.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unrecognized arguments: --mps" in result.stderr.str()


@pytest.mark.slow
def test_shards(gate: Gate) -> None:
    """Under pytest-split each shard judges and updates its own tests; in turn they write that of one run."""
    pytest.importorskip("pytest_split", reason="pytest-split is not installed")
    gate.write(test_it=SUITE)
    update = ("--mps-update-manifest", "--no-mps-rerun")
    whole = [f"test_it.py::test_eig[{n}] NotImplementedError" for n in (1, 3, 5)]
    start = [
        "test_it.py::test_eig[0] KeyError",
        whole[0],
        "test_it.py::test_eig[4] KeyError",
        "test_it.py::test_x KeyError",
    ]
    gate.manifest.write_text("".join(f"{line}\n" for line in start))
    plugins = "pytest_split.plugin,anymps.pytest_plugin"
    for group in ("1", "2"):
        share = ("--splits", "2", "--group", group, "--mps-manifest", "m.txt")
        gate.run_alone(*share, *update, plugins=plugins)
        assert gate.run_alone(*share, plugins=plugins).ret == pytest.ExitCode.OK
    assert gate.entries() == whole


def test_workers(gate: Gate) -> None:
    """With pytest-xdist the manifest is judged and written as without it, and the section holds all workers' tests."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    gate.write(test_it=SUITE)
    plugins = "xdist.plugin,anymps.pytest_plugin"
    update = ("--mps-manifest", "m.txt", "--mps-update-manifest")
    gate.run_alone("-n2", *update, plugins=plugins).assert_outcomes(passed=4, xfailed=3)
    assert gate.entries() == [f"test_it.py::test_eig[{n}] NotImplementedError" for n in (1, 3, 5)]
    gate.manifest.write_text(
        "test_it.py::test_eig[1] NotImplementedError\ntest_it.py::test_eig[2] NotImplementedError\n"
        "test_it.py::test_eig[7] NotImplementedError\n"
    )
    result = gate.run_alone("-n2", "--mps-manifest", "m.txt", "--mps-recording", "r.db", plugins=plugins)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, xfailed=1, failed=3)
    assert section(result)[-6:] == [
        "Differences from the manifest m.txt:",
        "  passed, expected NotImplementedError  (1 test)",
        "  not listed: NotImplementedError  (2 tests)",
        "  no longer exists, expected NotImplementedError",
        "      test_it.py::test_eig[7]",
        "If that is intended, pass --mps-update-manifest.",
    ]
    assert section(result)[1:4:2] == [
        "  aten::linalg_eig",
        '    3 times  test_it.py:6  | torch.linalg.eig(torch.ones(2, 2, device="mps"))',
    ]
    assert [path.name for path in gate.path.glob("r*.db*")] == ["r.db"]


@pytest.mark.slow
def test_a_worker_that_crashes(gate: Gate) -> None:
    """A test that takes its worker with it is red, an update lists it as `Crashed`, and then it is expected."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    gate.write(
        test_it="import os, torch\ndef test_a():\n    os._exit(1)\ndef test_b():\n    torch.ones(1, device='mps')"
    )
    gate.manifest.write_text("test_it.py::test_a OSError\n")
    plugins = "xdist.plugin,anymps.pytest_plugin"
    result = gate.run_alone("-n1", "--mps-manifest", "m.txt", plugins=plugins)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "  expected OSError, now Crashed  (1 test)" in section(result)
    update = gate.run_alone("-n1", "--mps-manifest", "m.txt", "--mps-update-manifest", plugins=plugins)
    assert (update.ret, gate.entries()) == (pytest.ExitCode.OK, ["test_it.py::test_a Crashed"])
    assert "# why: the worker process died while the test ran" in gate.manifest.read_text().splitlines()
    expected = gate.run_alone("-n1", "--mps-manifest", "m.txt", plugins=plugins)
    expected.assert_outcomes(passed=1, xfailed=1)
    assert expected.ret == pytest.ExitCode.OK


@pytest.mark.slow
def test_a_suite_that_chooses_mps_itself(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update runs failing tests again without mps, with the session's arguments: what fails then is not written.

    A test that asks for mps whatever it is told is named as unjudged.
    """
    monkeypatch.setenv("SUITE_DEVICE", "mps")
    gate.pytester.makeconftest(
        """\
        import os, pytest

        def pytest_addoption(parser):
            parser.addoption("--device")

        def pytest_generate_tests(metafunc):
            if "device" in metafunc.fixturenames:
                metafunc.parametrize("device", [metafunc.config.getoption("--device")])

        @pytest.fixture
        def chosen():
            return os.environ["SUITE_DEVICE"]
        """
    )
    gate.write(
        test_it="""\
            import subprocess, sys
            import pytest, torch

            def test_everywhere(chosen):
                assert torch.ones(3, device=chosen).sum() == 4, "as timestamps are"

            def test_on_mps(chosen):
                torch.linalg.eig(torch.ones(2, 2, device=chosen))

            def test_each(device):
                assert torch.ones(3, device=device).sum() == 4

            @pytest.mark.parametrize("x", ["a b", "c::d"])
            def test_by_name(x):
                assert torch.ones(3, device="mps").sum() == 4

            def test_process():
                subprocess.run([sys.executable, "-c", "import torch; torch.ones(1).to('mps')"], check=True)

            def test_fine():
                pass
        """
    )
    update = ("--mps-manifest=m.txt", "--mps-update-manifest")
    arguments = ("-s", "--device", "mps:0", "-x", "--maxfail=9", "--junitxml=j.xml", "-k", "not fine", *update)
    result = gate.run_alone(*arguments)
    result.assert_outcomes(xfailed=6, deselected=1)
    assert section(result)[-3:] == [
        "manifest m.txt: 4 added, 0 changed, 0 removed",
        "Not written, since they fail without mps, too (the gate fails until they are fixed or deselected): "
        "test_it.py::test_each[mps:0], test_it.py::test_everywhere",
        "Written, but not compared with the CPU, since they asked for mps again: "
        "test_it.py::test_by_name[a b], test_it.py::test_by_name[c::d], test_it.py::test_process",
    ]
    assert gate.entries() == [
        "test_it.py::test_by_name[a b] AssertionError",
        "test_it.py::test_by_name[c::d] AssertionError",
        "test_it.py::test_on_mps NotImplementedError",
        "test_it.py::test_process CalledProcessError",
    ]
    assert 'tests="6"' in (gate.path / "j.xml").read_text()
    gate.manifest.unlink()
    gate.run_alone(*arguments, "--no-mps-rerun")
    assert "test_it.py::test_everywhere AssertionError" in gate.entries()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conftest", "why"),
    [
        ("import anymps\nanymps.enable(quiet=True)\n", "asked for mps again"),
        ("import torch\nassert torch.backends.mps.is_available()\n", "did not run without mps"),
    ],
    ids=["has mps", "cannot start"],
)
def test_a_second_run_that_judges_nothing(gate: Gate, conftest: str, why: str) -> None:
    """Where a conftest brings the device back, or the second run cannot start, the tests are written, and named."""
    gate.pytester.makeconftest(conftest)
    gate.write(test_it="def test_it():\n    import torch\n    assert torch.ones(3).sum() == 4\n")
    assert section(gate.run("--mps-rerun", "--mps-manifest=m.txt", "--mps-update-manifest"))[-3:] == [
        "manifest m.txt: 1 added, 0 changed, 0 removed",
        f"Written, but not compared with the CPU, since it {why}: test_it.py::test_it",
        "Every failing test is listed: the gate passes with this manifest.",
    ]
    assert gate.entries() == ["test_it.py::test_it AssertionError"]


@pytest.mark.slow
def test_torchs_own_classes_and_child_processes(gate: Gate) -> None:
    """`instantiate_device_type_tests` makes a class for mps. A child that enables the device has the same Mac."""
    gate.write(
        test_it="""\
            import subprocess, sys, torch
            from torch.testing._internal.common_device_type import instantiate_device_type_tests
            from torch.testing._internal.common_utils import TestCase

            class TestIt(TestCase):
                def test_sum(self, device):
                    self.assertEqual(torch.ones(3, device=device).sum(), 3)

            instantiate_device_type_tests(TestIt, globals(), allow_mps=True)

            def ask(code):
                return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()

            def test_children():
                assert ask("import torch; print(torch.backends.mps.is_available())") == "False"
                assert ask("import anymps; s = anymps.enable(); print(s.mac.name, s.fallback)") == "M1 8GB True"
        """
    )
    result = gate.run_alone("-v", "--mps-mac", "M1 8GB", "--mps-fallback")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*TestItMPS::test_sum_mps PASSED*"])


@pytest.mark.slow
def test_a_child_that_comes_back(gate: Gate) -> None:
    """One that outlives its test, and so runs the session to its end, neither judges nor writes."""
    gate.write(
        test_it="""\
            import os, torch

            def test_a_child_comes_back():
                child = os.fork()
                if child == 0:
                    raise OSError("in the child")
                os.waitpid(child, 0)

            def test_missing():
                torch.linalg.eig(torch.ones(2, 2, device="mps"))
        """,
    )
    update = ("--mps-manifest", "m.txt", "--mps-update-manifest", "--mps-report", "json=m.json")
    result = gate.run_alone("-q", "-W", "ignore", *update)
    assert result.ret == pytest.ExitCode.OK
    assert gate.entries() == ["test_it.py::test_missing NotImplementedError"]
    assert result.outlines.count("manifest m.txt: 1 added, 0 changed, 0 removed") == 1
    report = json.loads((gate.path / "m.json").read_text())
    assert [refusal["operator"] for refusal in report["refusals"]] == ["aten::linalg_eig"]


def test_a_short_session_loads_little(gate: Gate) -> None:
    """What judges and shows recordings is loaded by sessions that do so, and by no pytest's rewriting."""
    gate.write(
        test_it="""\
            import sys

            def test_modules(mps_device):
                import torch
                assert torch.ones(3, device=mps_device).sum() == 3
                loaded = {name for name in sys.modules if name.startswith("anymps.")}
                heavy = {"report", "findings", "forecast", "cost", "metal", "plan", "train"}
                settings = {"findings", "findings._settings", "findings._severity", "report", "report._outputs"}
                asked = {f"anymps.{name}" for name in settings}  # what the process of the report is told
                assert {name for name in loaded if name.split(".")[1] in heavy} <= asked
                assert "anymps.rules._coverage" not in loaded
                assert "rich" not in sys.modules
                assert len(loaded) < 160, " ".join(sorted(loaded))
                rewritten = {name for name in loaded if "@pytest_ar" in vars(sys.modules[name])}
                assert rewritten <= {"anymps.pytest_plugin", "anymps.pytest_plugin._fixtures",
                                     "anymps.pytest_plugin._options"}
        """
    )
    gate.run_alone().assert_outcomes(passed=1)
