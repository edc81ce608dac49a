"""One run of one test, judged against what is expected of it: by its mark `mps_fails`, or else by the manifest."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from anymps._manifest import CRASHED, Entry, ending_of
from anymps.capture import ending_of as exception_facts
from anymps.pytest_plugin._marks import Fails

_SECTION = "mps manifest"
_DEEPEST = 10  # exceptions behind each other
_OF_MPS = re.compile(r"\bmps\b", re.IGNORECASE)


@dataclass
class Verdict:
    """Follows a test through its phases and gives each report the outcome that the gate sees.

    An expected failure becomes an `xfailed`, so that every reporter, `-x` and `--lf` know what it is. What should have
    failed and did not becomes a failure. `name` is the manifest's file, None without one; with `update`, failures are
    accepted because they are about to be written.
    """

    entry: Entry | None
    fails: Fails | None
    name: str | None
    update: bool
    failures: dict[str, set[str]] = field(default_factory=dict)
    """By phase, the exceptions that the test really ended with: more than one where parts of it fail."""
    outcome: str = "passed"
    """What it ended with if there are none."""
    judgement: str = ""
    """What the manifest has against it."""
    said: str = ""
    """The text of the first exception that it ended with."""
    exception: dict[str, object] = field(default_factory=dict)
    """What a recording keeps of that exception; empty without one."""
    _subtests: int = 0
    """Parts of the test that failed."""
    _red: bool = False

    @property
    def ending(self) -> str:
        """As the manifest writes it; `passed`, `skipped` or `xfailed` if nothing failed."""
        return ending_of(self.failures) or self.outcome

    @property
    def expected(self) -> bool:
        """Whether it failed, and in no other way than it should."""
        return bool(self.failures) and not self._red

    def see(self, report: pytest.TestReport, error: BaseException | None) -> None:
        """Judge one phase; may change the report."""
        if report.failed:
            self._failed(report, report.when, _exception_name(report, error), error)
            self._miss(report)
        elif report.skipped:
            self._skipped(report)
        elif report.when in ("call", "teardown"):
            self._passed(report)

    def see_subtest(self, report: pytest.TestReport, error: BaseException | None) -> None:
        """Judge a part of a test that reports on its own; the test's own report comes later."""
        if report.failed:
            self._failed(report, "call", _exception_name(report, error), error)
            self._subtests += 1

    def _failed(self, report: pytest.TestReport, phase: str, name: str, error: BaseException | None) -> None:
        if phase == "call" and self._subtests and error is None:  # "contains 1 failed subtest": judged already
            if self.expected:
                self._expect(report, "in subtests")
            return
        self.said = self.said or _told(name, error)
        if error is not None and not self.exception:
            self.exception = exception_facts(error)
        self.failures.setdefault(phase, set()).add(name)
        if self.fails is not None:
            if phase == "call" and self.fails.met_by(error):
                self._expect(report, f"mps_fails({self.fails})")
                if self.entry is not None:
                    self._listed_needlessly(report, "is marked mps_fails")
            else:
                self._red = True
                report.sections.append(("mps_fails", f"The mark expects {self.fails} in the test itself."))
            return
        wanted = self.entry.failures if self.entry is not None else {}
        if name in wanted.get(phase, ()):
            self._expect(report, f"{self._line()}: {name}")
            return
        if self.update:
            self._expect(report, f"new for {self.name}: {name}")
            return
        self._red = True
        if self.entry is not None:
            self.judgement = f"expected {self.entry.ending}, now {ending_of(self.failures)}"
            report.sections.append(
                (_SECTION, f"{self._line()} expects {self.entry.ending}, not {ending_of(self.failures)}.")
            )
        elif self.name is not None:
            self.judgement = f"not listed: {ending_of(self.failures)}"

    def crashed(self, report: pytest.TestReport) -> None:
        """Judge a test whose process died: the report is of pytest-xdist, the test has none of its own."""
        self._failed(report, "call", CRASHED, None)

    def _skipped(self, report: pytest.TestReport) -> None:
        own_mark = hasattr(report, "wasxfail")
        self.outcome = "xfailed" if own_mark else "skipped"
        if self.entry is not None:
            self._listed_needlessly(report, "is marked xfail" if own_mark else "was skipped")

    def _passed(self, report: pytest.TestReport) -> None:
        if report.when == "call" and self._subtests:
            if self.expected:
                self._expect(report, "in subtests")
            self._miss(report)
            return
        if self.fails is not None:
            if report.when == "call" and "call" not in self.failures:
                self._fail(report, f"The test passed, but is marked mps_fails({self.fails}): remove the mark.")
            return
        if self.entry is None or self.judgement:
            return
        due = {"call": ("setup", "call"), "teardown": ("teardown",)}[report.when]
        if any(phase in self.entry.failures and phase not in self.failures for phase in due):
            self._listed_needlessly(report, "passed")

    def _miss(self, report: pytest.TestReport) -> None:
        """A test of which parts fail must fail in all the ways that are listed."""
        if self.entry is None or self.update or self._red or self.fails is not None or report.when != "call":
            return
        if self.entry.failures.get("call", set()) - self.failures.get("call", set()):
            self.judgement = f"expected {self.entry.ending}, now {self.ending}"
            self._fail(report, f"{self._line()} expects {self.entry.ending}, not {self.ending}.")

    def _listed_needlessly(self, report: pytest.TestReport, what: str) -> None:
        assert self.entry is not None
        if self.update:
            return
        self.judgement = f"{what}, expected {self.entry.ending}"
        self._fail(
            report,
            f"The test {what}, but {self._line()} expects {self.entry.ending}: "
            "remove the line, or run with --mps-update-manifest.",
        )

    def _expect(self, report: pytest.TestReport, reason: str) -> None:
        report.outcome = "skipped"
        report.wasxfail = f"mps: {reason}"

    def _fail(self, report: pytest.TestReport, text: str) -> None:
        self._red = True
        if hasattr(report, "wasxfail"):
            del report.wasxfail
        report.outcome = "failed"
        report.longrepr = text

    def _line(self) -> str:
        assert self.entry is not None
        return f"{self.name}:{self.entry.line}"


def _told(name: str, error: BaseException | None) -> str:
    """The exception as Python says it; the one behind it, if only that one tells what MPS refused.

    `pytest.raises(match=...)`, `torch.jit.trace` and the like raise one of their own, the same for many causes.
    """
    behind = error
    for _ in range(_DEEPEST):
        if behind is None or _OF_MPS.search(str(behind)):
            break
        behind = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__)
    else:
        behind = None
    if behind is None or behind is error:
        return f"{name}: {error}".removesuffix(": None")
    return f"{type(behind).__name__}: {behind} (the test ended with {name})"


def _exception_name(report: pytest.TestReport, error: BaseException | None) -> str:
    if error is not None:
        return type(error).__name__
    # pytest fails a test without an exception if it has passed in spite of `xfail(strict=True)`.
    return "XPASS" if "XPASS(strict)" in str(report.longrepr) else "Failed"
