"""The gate where the tests run: a worker of pytest-xdist, or the one process. Watches each test and judges it."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from anymps._command_settings import PytestSettings
from anymps._errors import AnympsError
from anymps._manifest import Manifest, key
from anymps._own_process import packed
from anymps._settings import asked_for
from anymps.capture import SuiteCapture
from anymps.device import children_used_mps, default_device
from anymps.pytest_plugin._facts import INTERRUPTED, Facts
from anymps.pytest_plugin._late import LateErrors, told
from anymps.pytest_plugin._limits import (
    exceeded_memory,
    exceeded_waits,
    shader_faults,
    unexpected_fallbacks,
    wrong_numbers,
)
from anymps.pytest_plugin._marks import Marks, read_marks, skip_reason
from anymps.pytest_plugin._selection import Selection
from anymps.pytest_plugin._verdict import Verdict

if TYPE_CHECKING:
    from anymps.numerics import Found, NumberCheck

_ID = pytest.StashKey[str]()  # as it was collected: pytest-xdist appends a group later
_MARKS = pytest.StashKey[Marks]()
_SAID = 2000  # characters of an exception's text
_RUN = pytest.StashKey["_Run"]()


class _Run:
    """One attempt at a test, from its setup to the end of its teardown."""

    def __init__(self, marks: Marks, verdict: Verdict, late: LateErrors) -> None:
        self.marks = marks
        self.verdict = verdict
        self.late = late
        self.calling = False
        self.allocated = 0  # bytes on the device before the setup
        self.stack = ExitStack()


class Gate:
    """A plugin for one session."""

    def __init__(
        self, config: pytest.Config, settings: PytestSettings, manifest: Manifest | None, detail_limit: int
    ) -> None:
        """`detail_limit` is how many calls the recording keeps one by one."""
        self.capture: SuiteCapture | None = None
        self._detail_limit = detail_limit
        self._config = config
        self._settings = settings
        self._manifest = manifest
        self._selection = Selection(config)
        self._outside = Facts("")
        self._running = ""  # the test between its setup and the end of its teardown
        self._interrupted: Facts | None = None
        self._root = str(config.rootpath)
        self._numbers: NumberCheck | None = None
        self._wrong: dict[tuple[str, str, str, str], list[Found]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Begin to record, except in the controller of pytest-xdist, which runs no test."""
        if self._config.pluginmanager.hasplugin("dsession"):
            return
        capture = SuiteCapture(
            self._settings.recording, script="pytest", argv=sys.argv[1:], detail_limit=self._detail_limit
        )
        try:
            capture.__enter__()
        except AnympsError as error:
            raise pytest.UsageError(f"--mps: {error.reason}") from None
        self.capture = capture
        if self._settings.check_numbers is not None:
            from anymps.numerics import start_checking

            self._numbers = start_checking(asked_for("check_numbers") or self._settings.check_numbers, self._differs)

    def _differs(self, found: Found, site: int) -> None:
        """A result was wrong, at a line of the running test or of none."""
        from anymps.numerics import line_of_program

        if found.kind == "flushed":
            return
        self._wrong.setdefault((found.operator, found.dtype, found.kind, line_of_program()), []).append(found)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note the test before it can be deselected."""
        item.stash[_ID] = item.nodeid
        self._selection.collected.add(key(item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """A module whose import left an error on the device cannot be collected: no test can be blamed for it."""
        report = yield
        late = self.capture.late_error() if self.capture is not None else None
        if late is not None and not report.failed:
            report.outcome = "failed"
            report.longrepr = f"AcceleratorError: {told(late, 'collect', self._root)}"
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note which files were collected, and which could not be."""
        (self._selection.failed if report.failed else self._selection.reached).add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Read the marks. A wrong one ends the run before it starts."""
        for item in items:
            reason = skip_reason(item)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"mps: {reason}"))
            item.stash[_MARKS] = read_marks(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """With `--mps-default-device`: new tensors are on mps, in fixtures too."""
        if not self._settings.default_device:
            return (yield)
        with default_device():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin a test, or another attempt at it."""
        marks = item.stash.get(_MARKS, Marks())
        entry = self._manifest.entries.get(key(_test_id(item))) if self._manifest is not None else None
        name = os.path.relpath(self._manifest.path, self._root) if self._manifest is not None else None
        verdict = Verdict(entry, marks.fails, name, self._settings.update_manifest)
        run = item.stash[_RUN] = _Run(marks, verdict, LateErrors(self.capture, self._root))
        self._running = _test_id(item)
        if self.capture is not None:
            self._faults()
            self._wrong.clear()
            self.capture.late_error()  # left outside of all tests: it is in what the session shows, and no test's
            self._outside.add(self.capture.cut())
            if marks.memory is not None:
                run.stack.enter_context(self.capture.every_call())
                self.capture.core.reset_peak_memory()
                run.allocated = self.capture.core.memory_statistics()["allocated"][0]
        return (yield from run.late.drained("setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the test if it left an error on the device, or went over a limit of its own."""
        run = item.stash[_RUN]
        run.calling = True
        try:
            result = yield from run.late.drained("call")
            text = "\n".join(text for text in (self._exceeded(run), self._faults(), self._wrong_numbers()) if text)
        finally:
            run.calling = False
        if text:
            pytest.fail(text, pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the teardown if it left an error on the device."""
        return (yield from item.stash[_RUN].late.drained("teardown"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge the phase; the last one carries what the test did."""
        report = yield
        run = item.stash.get(_RUN, None)
        if run is None:
            return report
        error = call.excinfo.value if call.excinfo is not None else None
        run.late.tell(report, call)
        if run.calling and call.when == "call":
            run.verdict.see_subtest(report, error)
            return report
        run.verdict.see(report, error)
        if call.when == "teardown":
            self._running = ""
            run.stack.close()
            verdict = run.verdict
            facts = Facts(
                test=_test_id(item),
                ending=verdict.ending,
                expected=verdict.expected,
                marked=verdict.fails is not None,
                judgement=verdict.judgement,
                said=verdict.said[:_SAID],
                exception=verdict.exception,
                doctest=isinstance(item, pytest.DoctestItem),
            )
            if self.capture is not None:
                facts.add(self.capture.cut())
            vars(report)["anymps"] = packed(facts)  # travels with the report from a worker of pytest-xdist
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Take the last of the tape; a worker of pytest-xdist hands over what belongs to no test, and ends there.

        If the session was interrupted (Ctrl-C, `pytest.exit()`), the last belongs to the test that was running.
        """
        if self._running:
            self._interrupted = Facts(self._running, ending=INTERRUPTED)
        if self.capture is not None:
            (self._interrupted or self._outside).add(self.capture.cut())
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            self.close(int(exitstatus))
            output["anymps"] = self.rest()

    def close(self, status: int, suite: dict[str, object] | None = None) -> None:
        """End the recording, with what is to be kept of the tests."""
        if self.capture is not None:
            if self._numbers is not None:
                from anymps.numerics import stop_checking

                stop_checking(self.capture.note_fact)
            self.capture.close({"status": status}, suite)

    def rest(self) -> dict[str, Any]:
        """What belongs to no finished test: listed tests that are gone, what happened outside of tests and in one that
        was interrupted, a lost recording, and whether processes that tests started have used mps."""
        gone = self._selection.gone(self._manifest.entries) if self._manifest is not None else []
        return {
            "gone": gone,
            "outside": packed([facts for facts in (self._outside, self._interrupted) if facts is not None]),
            "failure": self.failure,
            "children_used_mps": children_used_mps(),
        }

    @property
    def failure(self) -> str:
        """Why the recording stopped before the session did; the empty text if it did not."""
        failure = self.capture.failure if self.capture is not None else None
        return str(failure) if failure else ""

    def _faults(self) -> str:
        if not self._settings.check_shaders:
            return ""
        from anymps.metal import take_shader_faults

        return shader_faults(take_shader_faults())

    def _wrong_numbers(self) -> str:
        found, self._wrong = self._wrong, {}
        return wrong_numbers([(key[3], several) for key, several in found.items()], self._root)

    def _exceeded(self, run: _Run) -> str:
        capture, marks = self.capture, run.marks
        if capture is None or (not self._settings.fail_on_fallback and marks.waits is None and marks.memory is None):
            return ""
        section = capture.so_far()
        texts = []
        if self._settings.fail_on_fallback:
            texts.append(unexpected_fallbacks(section, marks, self._root))
        if marks.waits is not None:
            texts.append(exceeded_waits(section, marks.waits, self._root))
        if marks.memory is not None:
            added = capture.core.memory_statistics()["allocated"][1] - run.allocated
            largest = capture.allocations() if added > marks.memory else []
            texts.append(exceeded_memory(added, marks.memory, largest, self._root))
        return "\n".join(text for text in texts if text)


def _test_id(item: pytest.Item) -> str:
    return item.stash.get(_ID, item.nodeid)
