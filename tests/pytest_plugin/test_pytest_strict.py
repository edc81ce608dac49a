"""`pytest --mps --mps-manifest`: every way in which a suite can differ from its manifest is red, and can be written."""

from __future__ import annotations

import pytest

from gate import Gate, gate, loaded, section

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

STRICT = ("--mps-manifest", "m.txt")
NAMED = (*STRICT, "-v")  # the section names each test
UPDATE = (*STRICT, "--mps-update-manifest")

SUITE = """\
    import os, pytest

    FAILS = os.environ.get("FAILS", "").split()

    def maybe(name, error=ValueError("x")):
        if name in FAILS:
            raise error

    @pytest.mark.parametrize("x", ["a b", "c::d", "e#f"])
    def test_one(x):
        maybe("one")

    def test_two():
        maybe("two")

    @pytest.fixture
    def resource():
        maybe("setup", OSError())
        yield
        maybe("teardown", KeyError())

    def test_phases(resource):
        maybe("call", AssertionError())

    def test_may_skip():
        if "skip" in FAILS:
            pytest.skip("no such thing here")

    @pytest.mark.xfail(strict=False)
    def test_own_mark():
        assert False
"""

JUDGED = "Differences from the manifest m.txt:"


def judged(result: pytest.RunResult) -> list[str]:
    """What the section says against the manifest: test and reason on one line."""
    lines = result.outlines
    if JUDGED not in lines:
        return []
    found, why = [], ""
    for line in lines[lines.index(JUDGED) + 1 :]:
        if not line.startswith("  "):
            assert line == "If that is intended, pass --mps-update-manifest."
            break
        if line.startswith("      "):
            found.append(f"{line.strip()}: {why}")
        else:
            why = line.strip()
    return sorted(found)


@pytest.fixture
def suite(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The suite, all of it passing, and an empty manifest."""
    monkeypatch.delenv("FAILS", raising=False)
    gate.write(test_it=SUITE)
    gate.manifest.write_text("")
    return gate


def test_new_changed_and_passing(suite: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new failure, another exception, a pass, a skip, an own mark, and a test that is gone are red, each by name."""
    suite.manifest.write_text(
        "test_it.py::test_may_skip OSError\n"
        "test_it.py::test_one[a b] ValueError\n"
        "test_it.py::test_one[c::d] TypeError\n"
        "test_it.py::test_own_mark AssertionError\n"
        "test_it.py::test_phases OSError\n"
        "test_it.py::test_removed OSError\n"
    )
    monkeypatch.setenv("FAILS", "one skip")
    result = suite.run(*NAMED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=5, xfailed=1)
    assert judged(result) == [
        "test_it.py::test_may_skip: was skipped, expected OSError",
        "test_it.py::test_one[c::d]: expected TypeError, now ValueError",
        "test_it.py::test_one[e#f]: not listed: ValueError",
        "test_it.py::test_own_mark: is marked xfail, expected AssertionError",
        "test_it.py::test_phases: passed, expected OSError",
        "test_it.py::test_removed: no longer exists, expected OSError",
    ]
    text = result.stdout.str()
    assert "m.txt:3 expects TypeError, not ValueError." in text
    for what, line in (("passed", 5), ("was skipped", 1)):
        assert (
            f"The test {what}, but m.txt:{line} expects OSError: remove the line, or run with --mps-update-manifest."
        ) in text


@pytest.mark.parametrize("fails", ["setup", "call", "teardown", "call teardown"])
def test_phases(suite: Gate, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """An exception in setup or teardown is another failure than one in the test; what an update writes is green."""
    endings = {
        "setup": "OSError@setup",
        "call": "AssertionError",
        "teardown": "KeyError@teardown",
        "call teardown": "AssertionError+KeyError@teardown",
    }
    monkeypatch.setenv("FAILS", fails)
    assert suite.run(*STRICT).ret == pytest.ExitCode.TESTS_FAILED
    first = suite.run(*UPDATE)
    assert first.ret == pytest.ExitCode.OK
    assert section(first)[1:] == [
        "manifest m.txt: 1 added, 0 changed, 0 removed",
        "Every failing test is listed: the gate passes with this manifest.",
    ]
    assert suite.entries() == [f"test_it.py::test_phases {endings[fails]}"]
    result = suite.run(*NAMED)
    assert (result.ret, judged(result)) == (pytest.ExitCode.OK, [])
    monkeypatch.setenv("FAILS", "call" if fails != "call" else "setup")
    result = suite.run(*NAMED)
    assert (result.ret, len(judged(result))) == (pytest.ExitCode.TESTS_FAILED, 1)


def test_only_what_was_selected_is_judged(suite: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """With -k, a single test or another file the rest of the manifest is left alone; a gone test needs its file."""
    suite.write(test_other="def test_x():\n    pass")
    listed = ("test_gone.py::test_x", "test_it.py::test_gone", "test_it.py::test_two")
    suite.manifest.write_text("".join(f"{test} OSError\n" for test in listed))
    for arguments in (["-k", "test_x", "test_other.py"], ["test_it.py::test_one"], ["--lf", "-k", "test_x"]):
        result = suite.run(*NAMED, "-p", "cacheprovider", *arguments)
        assert (result.ret, judged(result)) == (pytest.ExitCode.OK, [])
    result = suite.run(*NAMED, "test_it.py", "-k", "one")
    assert judged(result) == ["test_it.py::test_gone: no longer exists, expected OSError"]
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result = suite.run(*NAMED, "--ignore", "test_it.py")
    assert judged(result) == ["test_gone.py::test_x: no longer exists, expected OSError"]
    result = suite.run(*NAMED, "-k", "one")
    assert judged(result) == [
        "test_gone.py::test_x: no longer exists, expected OSError",
        "test_it.py::test_gone: no longer exists, expected OSError",
    ]


def test_update_touches_what_ran(suite: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of tests that did not run stay, with their comments; the next run is green."""
    suite.manifest.write_text(
        "# known\ntest_it.py::test_one[a b] ValueError\n# elsewhere\ntest_other.py::test_x OSError\n"
        "test_it.py::test_two OSError\n"
    )
    suite.write(test_other="def test_x():\n    raise OSError")
    monkeypatch.setenv("FAILS", "one")
    result = suite.run(*UPDATE, "test_it.py")
    result.assert_outcomes(passed=3, xfailed=4)
    assert "manifest m.txt: 2 added, 0 changed, 1 removed" in result.outlines
    assert suite.manifest.read_text() == (
        "# known\n# why: ValueError: x\ntest_it.py::test_one[a b] ValueError\n"
        "# why: ValueError: x\ntest_it.py::test_one[c::d] ValueError\n"
        "# why: ValueError: x\ntest_it.py::test_one[e#f] ValueError\n# elsewhere\ntest_other.py::test_x OSError\n"
    )
    assert suite.run(*STRICT).ret == pytest.ExitCode.OK


TWO_RED = """\
    import torch

    def test_float64():
        torch.ones(3, dtype=torch.float64, device="mps")

    def test_traced():
        try:
            torch.ones(3, dtype=torch.float64, device="mps")
        except TypeError as error:
            raise AssertionError("Tracing failed sanity checks!") from error
"""
FLOAT64 = (
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
    "Please use float32 instead."
)


def test_an_interrupt_of_the_session_writes_what_is_known(gate: Gate) -> None:
    """Nothing is run again after Ctrl-C; what is not judged says so, until an update has judged it."""
    gate.write(test_a=TWO_RED, test_b="def test_stop():\n    raise KeyboardInterrupt")
    result = gate.run(*UPDATE, "--mps-rerun")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [line for line in section(result) if "ritten" in line or "added" in line] == [
        "manifest m.txt: 2 added, 0 changed, 0 removed",
        "Written, but not compared with the CPU, since they did not run without mps before the interrupt (run the "
        "update again): test_a.py::test_float64, test_a.py::test_traced",
    ]
    assert gate.manifest.read_text().count(f"# why: not judged: {FLOAT64} (test_a.py)\n") == 2
    gate.run(*UPDATE, "test_a.py").assert_outcomes(xfailed=2)
    assert "not judged" not in gate.manifest.read_text()


def test_an_interrupt_of_the_second_run_writes_what_is_known(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an interrupt of the session; the run ends with the status of its tests."""

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anymps.runs.run", stopped)
    gate.write(test_a=TWO_RED)
    result = gate.run(*UPDATE, "--mps-rerun")
    result.assert_outcomes(xfailed=2)
    assert section(result)[-2:] == [
        "manifest m.txt: 2 added, 0 changed, 0 removed",
        "Written, but not compared with the CPU, since they did not run without mps before the interrupt (run the "
        "update again): test_a.py::test_float64, test_a.py::test_traced",
    ]


def test_an_interrupt_while_the_manifest_is_written_ends_in_one_line(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anymps._manifest.updated", stopped)
    gate.write(test_a=TWO_RED)
    result = gate.run(*UPDATE)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert section(result)[-1] == "interrupted before manifest m.txt was written"
    assert "Traceback" not in str(result.stdout)


def test_a_reason_names_what_mps_refused_behind_an_exception(gate: Gate) -> None:
    """An exception that hides its cause groups with those that show it; pytest's own line names a test that is new."""
    gate.write(test_a=TWO_RED)
    result = gate.run(*UPDATE, "-rx")
    whole = [line for line in gate.manifest.read_text().splitlines() if line.startswith("# why: ")]
    assert whole == [f"# why: {FLOAT64} (test_a.py)"] * 2
    assert [line for line in result.outlines if line.startswith("XFAIL")] == [
        "XFAIL test_a.py::test_float64 - mps: new for m.txt: TypeError",
        "XFAIL test_a.py::test_traced - mps: new for m.txt: AssertionError",
    ]


def test_update_of_an_interrupted_session(suite: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle loses no entry: neither of the tests that did not come to their turn, nor of the one hit."""
    suite.write(
        test_it="""\
            import pytest
            def test_a():
                raise OSError
            def test_b():
                raise KeyboardInterrupt
            def test_c():
                pass
        """
    )
    before = "test_it.py::test_b OSError\ntest_it.py::test_c OSError\ntest_it.py::test_d OSError\n"
    suite.manifest.write_text(before)
    assert suite.run(*UPDATE).ret == pytest.ExitCode.INTERRUPTED
    assert suite.manifest.read_text() == "# why: OSError\ntest_it.py::test_a OSError\n" + before


def test_a_file_that_cannot_be_collected(suite: Gate) -> None:
    """Tests of a file with an error are neither gone nor touched by an update."""
    suite.write(test_it="raise OSError")
    suite.manifest.write_text("test_it.py::test_one OSError\n")
    result = suite.run(*NAMED, "--continue-on-collection-errors")
    assert (result.ret, judged(result)) == (pytest.ExitCode.TESTS_FAILED, [])
    suite.run(*UPDATE, "--continue-on-collection-errors")
    assert suite.manifest.read_text() == "test_it.py::test_one OSError\n"


def test_an_expected_failure_stops_nothing(suite: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """With -x the run goes past expected failures and stops at the first other."""
    suite.manifest.write_text("".join(f"test_it.py::test_one[{x}] ValueError\n" for x in ("a b", "c::d", "e#f")))
    monkeypatch.setenv("FAILS", "one two")
    suite.run(*STRICT, "-x").assert_outcomes(xfailed=3, failed=1)


def test_unittest_classes_and_subtests(suite: Gate) -> None:
    """Methods of unittest classes are tests like others; a failing part of one counts as the test's own failure."""
    suite.write(
        test_it="""\
            import unittest

            class TestIt(unittest.TestCase):
                def test_error(self):
                    raise OSError

                def test_parts(self):
                    for i in range(3):
                        with self.subTest(i=i):
                            if i == 1:
                                raise ValueError(i)
        """
    )
    assert suite.run(*STRICT).ret == pytest.ExitCode.TESTS_FAILED
    assert suite.run(*UPDATE).ret == pytest.ExitCode.OK
    assert suite.entries() == ["test_it.py::TestIt::test_error OSError", "test_it.py::TestIt::test_parts ValueError"]
    assert suite.run(*STRICT).ret == pytest.ExitCode.OK


PARTS = """\
    import os, unittest

    FAILS = os.environ.get("FAILS", "").split()

    class TestIt(unittest.TestCase):
        def test_parts(self):
            for name, error in (("one", ValueError), ("two", KeyError)):
                with self.subTest(name):
                    if name in FAILS:
                        raise error(name)
            if "own" in FAILS:
                raise OSError
"""


@pytest.mark.parametrize(
    ("fails", "ending"),
    [
        ("one two", "KeyError+ValueError"),
        ("one own", "OSError+ValueError"),
        ("one two own", "KeyError+OSError+ValueError"),
    ],
)
def test_parts_that_fail_in_different_ways(
    suite: Gate, monkeypatch: pytest.MonkeyPatch, fails: str, ending: str
) -> None:
    """All exceptions of a test's parts are listed; one more, one less or another one is red."""
    suite.write(test_it=PARTS)
    monkeypatch.setenv("FAILS", fails)
    assert suite.run(*UPDATE).ret == pytest.ExitCode.OK
    assert suite.entries() == [f"test_it.py::TestIt::test_parts {ending}"]
    result = suite.run(*NAMED)
    assert (result.ret, judged(result)) == (pytest.ExitCode.OK, [])
    for other, now in (("one", "ValueError"), ("two", "KeyError")):
        monkeypatch.setenv("FAILS", other)
        result = suite.run(*NAMED)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert judged(result) == [f"test_it.py::TestIt::test_parts: expected {ending}, now {now}"]
        assert f"m.txt:2 expects {ending}, not {now}." in result.stdout.str()
    suite.manifest.write_text("test_it.py::TestIt::test_parts ValueError\n")
    monkeypatch.setenv("FAILS", fails)
    result = suite.run(*NAMED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert judged(result)[0].startswith("test_it.py::TestIt::test_parts: expected ValueError, now ")


IDS = [
    "a b", " lead", "trail ", "", "ünï ☃", "new\nline", "tab\t", "[br]ack]ets[", "a::b", "#no", "a #b", "x] # y",
    "back\\slash", "ctl\x07", "\u202e\u2028", "x OSError", "d@setup",
]  # fmt: skip


def test_ids_with_odd_characters(suite: Gate) -> None:
    """Whatever stands in a parametrised id, what an update writes is green, by the whole file and by single ids."""
    suite.write(test_it=f"import pytest\n@pytest.mark.parametrize('x', {IDS!r})\ndef test_x(x):\n    raise OSError")
    result = suite.run(*UPDATE)
    result.assert_outcomes(xfailed=len(IDS))
    assert len(suite.entries()) == len(IDS)
    before = suite.manifest.read_text()
    suite.run(*STRICT).assert_outcomes(xfailed=len(IDS))
    suite.run(*STRICT, "test_it.py::test_x[a::b]", "test_it.py::test_x[[br]ack]ets[]").assert_outcomes(xfailed=2)
    suite.run(*UPDATE, "-k", "lead").assert_outcomes(xfailed=1, deselected=len(IDS) - 1)
    assert before == suite.manifest.read_text()


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures", "--setup-plan", "--setup-only"])
def test_without_running_tests_nothing_is_judged_or_written(suite: Gate, option: str) -> None:
    """What calls no test leaves manifest, baseline, recording and reports alone."""
    files = {name: suite.path / name for name in ("m.txt", "b.txt", "run.anymps", "m.json")}
    for name, path in files.items():
        path.write_text("test_it.py::test_two OSError\n" if name == "m.txt" else "")
    arguments = ("--mps-baseline=b.txt", "--mps-recording=run.anymps", "--mps-report=json=m.json")
    for update in ((), ("--mps-update-manifest", "--mps-update-baseline")):
        assert suite.run("--mps-manifest=m.txt", *arguments, *update, option).ret == pytest.ExitCode.OK
    assert [path.read_text() for path in files.values()] == ["test_it.py::test_two OSError\n", "", "", ""]


def test_strict_xfail_that_passes(suite: Gate) -> None:
    """A test that passes in spite of `xfail(strict=True)` fails without an exception, and can be listed."""
    suite.write(test_it="import pytest\n@pytest.mark.xfail(strict=True)\ndef test_x():\n    pass")
    assert suite.run(*UPDATE).ret == pytest.ExitCode.OK
    assert suite.entries() == ["test_it.py::test_x XPASS"]
    assert suite.run(*STRICT).ret == pytest.ExitCode.OK
