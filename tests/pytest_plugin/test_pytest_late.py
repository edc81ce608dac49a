"""`pytest --mps`: an error that a kernel leaves on the device belongs to the test, and the phase, that made it."""

from __future__ import annotations

import pytest
import torch

from anymps.capture._suite import LateError, SuiteCapture
from anymps.record import Wait
from gate import Gate, gate, loaded, section

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

BAD = 'torch.zeros(3, device="mps")[torch.tensor([7], device="mps")]'
WHY = "On a Mac the next wait raises the error, often in another test."
MESSAGE = "index 7 is out of bounds for dimension 0 with size 3"


def told(file: str, line: int, phase: str) -> list[str]:
    """What a report says of `BAD` at that line."""
    return [
        MESSAGE,
        f"Made at {file}:{line}  | {BAD}",
        f"Nothing waited for the GPU between this line and the end of the {phase}. {WHY}",
    ]


def test_the_test_that_made_it(gate: Gate) -> None:
    """The test with the bad index is red, with its line, though it never reads; the next one, which reads, is green."""
    gate.write(
        test_it=f"""\
            import torch

            def test_bad():
                {BAD}

            def test_innocent():
                assert torch.ones(3, device="mps").sum().item() == 3
        """
    )
    result = gate.run("-rA")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*test_bad*", *(line.replace("[", "[[]") for line in told("test_it.py", 4, "test"))])
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_bad - torch.AcceleratorError: *"])
    assert section(result) == [
        "Refused by MPS:",
        f"  AcceleratorError: {MESSAGE}",
        "  fix: Check the values before this call. While debugging, call `torch.mps.synchronize()` right after it.",
        f"    once  test_it.py:4  | {BAD}",
        "      in test_it.py::test_bad",
    ]


def test_manifest_lists_who_made_it(gate: Gate) -> None:
    """What an update writes is the test that made the error, in its phase; a later run holds it."""
    gate.write(
        test_it=f"""\
            import pytest, torch

            @pytest.fixture
            def before():
                {BAD}

            @pytest.fixture
            def after():
                yield
                {BAD}

            def test_bad():
                {BAD}

            def test_setup(before):
                pass

            def test_teardown(after):
                pass

            def test_innocent():
                torch.ones(3, device="mps").sum().item()
        """
    )
    gate.run("--mps-manifest=m.txt", "--mps-update-manifest")
    assert gate.entries() == [
        "test_it.py::test_bad AcceleratorError",
        "test_it.py::test_setup AcceleratorError@setup",
        "test_it.py::test_teardown AcceleratorError@teardown",
    ]
    gate.run("--mps-manifest=m.txt").assert_outcomes(passed=2, xfailed=3)


def test_beside_another_failure(gate: Gate) -> None:
    """A test that fails for a reason of its own keeps it, and has the device's error in a section; a skip has not."""
    gate.write(
        test_it=f"""\
            import pytest, torch

            def test_wrong():
                {BAD}
                assert False, "its own"

            def test_skipped():
                {BAD}
                pytest.skip("too late")

            @pytest.mark.mps_fails(raises=torch.AcceleratorError, match="out of bounds")
            def test_marked():
                {BAD}

            def test_raised_in_time():
                x = {BAD}
                with pytest.raises(torch.AcceleratorError):
                    x.item()
        """
    )
    result = gate.run()
    result.assert_outcomes(failed=2, xfailed=1, passed=1)
    lines = [line.replace("[", "[[]") for line in told("test_it.py", 4, "test")]
    result.stdout.fnmatch_lines(["*AssertionError: its own", "*- mps device -*", *lines])
    assert "1 more in tests that did not fail." in section(result)


def test_import_and_between_tests(gate: Gate) -> None:
    """A module that makes one when it is imported cannot be collected; what lies between tests is no test's."""
    gate.write(test_it=f"import torch\n{BAD}\ndef test_fine(): pass\n", test_other="def test_other(): pass\n")
    result = gate.run()
    result.assert_outcomes(errors=1)
    lines = told("test_it.py", 2, "import")
    result.stdout.fnmatch_lines([f"AcceleratorError: {MESSAGE}", *(line.replace("[", "[[]") for line in lines[1:])])
    gate.write(
        test_it='import torch\ndef test_fine(): torch.ones(3, device="mps").sum().item()\n',
        conftest=f"""\
            import torch

            def pytest_runtest_logstart():
                {BAD}
        """,
    )
    result = gate.run("test_it.py")
    result.assert_outcomes(passed=1)
    assert "      in no test (collection, or fixtures between tests)" in section(result)


@pytest.mark.parametrize("source", ["native", "observer"])
def test_both_sources(virtual_device: torch.device, source: str) -> None:
    """The tape of the virtual device, and the observer of a real one, which has to wait for the answer."""
    with SuiteCapture() as capture:
        pass
    assert capture.late_error() is None
    suite = SuiteCapture()
    suite._source = source
    with suite as capture:
        assert capture.late_error() is None
        torch.zeros(3, device="mps")[torch.tensor([7], device="mps")]
        line = 'torch.zeros(3, device="mps")[torch.tensor([7], device="mps")]'
        late = capture.late_error()
        assert isinstance(late, LateError)
        assert (late.message, late.site.source) == (MESSAGE, line)
        assert capture.late_error() is None
        torch.mps.synchronize()
        refused = capture.cut()
    assert [(refusal.error, refusal.site.source, refusal.origin.known) for refusal in refused.refusals] == [
        ("AcceleratorError", line, False)
    ]
    assert [wait for _, wait, _ in refused.waits if wait is not Wait.COPY_TO_MPS] == [Wait.SYNCHRONIZE]
