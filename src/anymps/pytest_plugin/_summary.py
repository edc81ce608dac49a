"""The gate where pytest was started: header, final section, annotations, and the manifest."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from anymps._command_settings import PytestSettings
from anymps._errors import RecordingError
from anymps._manifest import Manifest, key
from anymps._own_process import unpacked
from anymps._paths import project_path
from anymps._text import clean, plural
from anymps.capture import DETAIL_LIMIT
from anymps.device import State, banner
from anymps.pytest_plugin._baseline import Baseline, New
from anymps.pytest_plugin._expected import own_packages, suite_facts
from anymps.pytest_plugin._facts import Facts
from anymps.pytest_plugin._gate import Gate
from anymps.pytest_plugin._groups import Group, Groups, group
from anymps.pytest_plugin._options import runs_tests
from anymps.pytest_plugin._verdict import Verdict
from anymps.pytest_plugin._words import names, place, times
from anymps.record import RefusalKind

if TYPE_CHECKING:
    from anymps.pytest_plugin._parts import Parts
    from anymps.pytest_plugin._reports import Reports

_SHOWN = 10  # lines of one kind; a recording holds the rest
_GONE = "no longer exists"
_NO_TEST = "no test (collection, or fixtures between tests)"


class Expected(NamedTuple):
    """The manifest and baseline that the session is compared with."""

    manifest: Manifest | None
    baseline: Baseline | None


class Summary:
    """A plugin for one session. With pytest-xdist the facts come from the workers, in their reports."""

    def __init__(
        self,
        config: pytest.Config,
        settings: PytestSettings,
        state: State,
        expected: Expected,
        gate: Gate,
        reports: Reports | None,
    ) -> None:
        self._config = config
        self._settings = settings
        self._state = state
        self._manifest, self._baseline = expected
        self._gate = gate
        self._reports = reports
        self._parts: Parts | None = None  # with pytest-xdist, if anything is recorded
        self._new: list[New] = []
        self._remarks: list[str] = []
        self._cut_short = False  # a recording that its disk could not hold
        self._facts: dict[str, Facts] = {}
        self._outside: list[Facts] = []
        self._children_used_mps = False  # processes that tests started
        self._gone: list[str] | None = None  # None: nobody could tell
        self._root = str(config.rootpath)
        self._process = os.getpid()

    def pytest_report_header(self) -> list[str]:
        """Which device this is, and the settings in force."""
        settings, words = self._settings, []
        if self._state.fallback:
            words.append("fallback on")
        if settings.fail_on_fallback:
            words.append("fallbacks fail")
        if settings.default_device:
            words.append("mps is the default device")
        if self._manifest is not None:
            words.append(f"manifest {self._name()} ({plural(len(self._manifest.entries), 'expected failure')})")
        if self._baseline is not None:
            name = self._relative(self._baseline.path)
            words.append(f"baseline {name} ({plural(len(self._baseline.known), 'line')})")
        return [banner(self._state), *([f"anymps: {', '.join(words)}"] if words else [])]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the facts of a finished test."""
        packed = getattr(report, "anymps", None)
        if packed is not None and report.when == "teardown":
            facts: Facts = unpacked(packed)
            self._facts[key(facts.test)] = facts  # the last attempt counts

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """With pytest-xdist: take the place of the recording before the workers start."""
        path = self._settings.recording
        if path is None or not self._config.pluginmanager.hasplugin("dsession"):
            return
        from anymps.pytest_plugin._parts import Parts

        try:
            self._parts = Parts(path, DETAIL_LIMIT)
        except RecordingError as error:
            raise pytest.UsageError(f"--mps: {error}") from None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist where to record."""
        if self._parts is not None:
            self._parts.begin(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist knows beyond its tests."""
        rest = getattr(node, "workeroutput", {}).get("anymps")
        if rest is not None:
            self._take(rest)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Judge a test that took its worker of pytest-xdist with it."""
        test = key(crashitem)
        entry = self._manifest.entries.get(test) if self._manifest is not None else None
        name = self._name() if self._manifest is not None else None
        verdict = Verdict(entry, None, name, self._settings.update_manifest)
        verdict.crashed(report)
        self._facts[test] = Facts(
            crashitem, ending=verdict.ending, expected=verdict.expected, judgement=verdict.judgement
        )

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        """When all workers have ended, and before the terminal's summary."""
        try:
            return (yield)
        finally:
            if self._is_here():
                self._judge(session, exitstatus)
                self._write_recording(session)

    def _judge(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge the manifest as a whole, or bring it up to date."""
        if not self._config.pluginmanager.hasplugin("dsession"):
            self._take(self._gate.rest())
        whole = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if not whole:
            self._gone = None  # the session was cut short: a test that was not met may well be there
        if self._baseline is not None:
            self._new = self._baseline.new([*self._facts.values(), *self._outside], self._root)
        if self._settings.update_baseline:
            self._update_baseline(session)
        if self._settings.update_manifest:
            self._update(session, exitstatus)
        unused = self._untouched() and not self._settings.allow_unused
        red = self._new or ((self._gone or unused) and not self._settings.update_manifest)
        if red and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write_recording(self, session: pytest.Session) -> None:
        """Close the recording, or join what the workers have recorded, and write the reports."""
        own = own_packages(self._config.rootpath)
        suite = suite_facts([*self._facts.values(), *self._outside], self._manifest, self._name(), own)
        self._gate.close(int(session.exitstatus), suite)
        if not self._cut_short:
            self._lost(self._gate.failure)  # the last of it may have been too much
        joined, well = True, not self._cut_short
        if self._parts is not None:
            try:
                self._remarks += self._parts.join(int(session.exitstatus), suite)
            except RecordingError as error:
                self._remarks.append(f"the recordings of the workers could not be joined: {error}")
                joined = well = False
        if self._reports is not None and joined:
            said, written = self._reports.write()
            self._remarks += said
            well = well and written
        if not well:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section at the end; nothing where there is nothing to say."""
        if not self._is_here():
            return
        facts = [*self._facts.values(), *self._outside]
        groups = group(facts, self._root)
        judged = self._judgements()
        lines = [
            *self._section(groups),
            *self._unused(),
            *self._real_kernels(facts),
            *self._baseline_lines(),
            *self._manifest_lines(judged),
            *self._remarks,
        ]
        if lines:
            mac = f"virtual {self._state.mac.name}" if self._state.mac is not None else "real device"
            terminalreporter.write_sep("=", f"mps: {mac}, torch {self._state.torch}")
            for line in lines:
                terminalreporter.write_line(clean(line))
        if os.environ.get("GITHUB_ACTIONS") == "true":
            from anymps.pytest_plugin._annotations import workflow_commands

            entries = self._manifest.entries if self._manifest is not None else {}
            at = {test: entries[test].line for test, _ in judged if test in entries}
            path = str(self._manifest.path) if self._manifest is not None else ""
            for line in workflow_commands(groups, judged, path, at, self._new):
                terminalreporter.write_line(line)
            if self._untouched() and not self._settings.allow_unused:
                terminalreporter.write_line(f"::error title=mps::{_unused(self._untouched())}")

    def _is_here(self) -> bool:
        """Whether this is the process that pytest was started in, not a forked child that left its test alive."""
        return os.getpid() == self._process

    def _take(self, rest: dict[str, Any]) -> None:
        gone = set(rest["gone"])
        # With `--dist loadfile` and the like all workers collect the same tests; a test is gone if no one has it.
        self._gone = sorted(gone & set(self._gone)) if self._gone is not None else sorted(gone)
        self._outside += unpacked(rest["outside"])
        self._children_used_mps |= rest["children_used_mps"]
        self._lost(rest["failure"])

    def _lost(self, failure: str) -> None:
        """Tell that a recording stopped before the session did; nothing for the empty text."""
        if failure:
            self._cut_short = True
            self._remarks.append(f"recording stopped: {failure}. What was recorded before can be read.")

    def _update(self, session: pytest.Session, exitstatus: int) -> None:
        from anymps.pytest_plugin._update import update

        assert self._manifest is not None
        rerun = self._settings.rerun and self._state.virtual  # a Mac has no process without mps
        try:
            self._remarks += update(
                self._config, self._manifest, self._facts, self._gone or (), rerun=rerun, status=exitstatus
            )
        except OSError as error:
            self._remarks.append(f"manifest {self._name()} could not be written: {error}")
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        except KeyboardInterrupt:  # a second one, during the write, which is atomic: the file is the old or the new one
            self._remarks.append(f"interrupted before manifest {self._name()} was written")
            session.exitstatus = pytest.ExitCode.INTERRUPTED

    def _update_baseline(self, session: pytest.Session) -> None:
        assert self._baseline is not None
        name = self._relative(self._baseline.path)
        try:
            added, removed = self._baseline.update(self._new, self._root)
        except OSError as error:
            self._remarks.append(f"baseline {name} could not be written: {error}")
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            return
        self._new = []
        self._remarks.append(f"baseline {name}: {added} added, {removed} removed")

    def _untouched(self) -> int:
        """How many tests ran in a session in which nothing reached mps; 0 if something did."""
        facts = [*self._facts.values(), *self._outside]
        used = self._children_used_mps or any(test.calls or test.refusals for test in facts)
        if used or not runs_tests(self._config.option):
            return 0
        return sum(test.ending not in ("", "skipped") for test in facts)

    def _unused(self) -> Iterator[str]:
        """A gate that nothing came through has shown nothing."""
        ran = self._untouched()
        if ran:
            yield f"{_unused(ran)}, so this session says nothing about a Mac."
            if not self._settings.allow_unused:
                yield "  fix: take the device from torch.accelerator in the tests, or run with --mps-default-device"
                yield "If that is intended, pass --mps-allow-unused."

    def _baseline_lines(self) -> Iterator[str]:
        if self._new:
            assert self._baseline is not None
            yield f"Not in the baseline {self._relative(self._baseline.path)}:"
            for line in self._new:
                how = f"{line.what} ran on the CPU" if line.fallback else f"waits for the GPU ({line.what})"
                yield f"  {how}, {times(line.count)}  {place(line.site, self._root)}"
                yield f"      in {names(test or _NO_TEST for test in line.tests)}"
            yield "If that is intended, pass --mps-update-baseline."

    def _judgements(self) -> list[tuple[str, str]]:
        """Tests that the manifest is not at one with, and why."""
        judged = [(test, facts.judgement) for test, facts in self._facts.items() if facts.judgement]
        if not self._settings.update_manifest and self._manifest is not None:
            entries = self._manifest.entries
            judged += [(test, f"{_GONE}, expected {entries[test].ending}") for test in self._gone or ()]
        return sorted(judged)

    def _manifest_lines(self, judged: list[tuple[str, str]]) -> Iterator[str]:
        if not judged:
            return
        yield f"Differences from the manifest {self._name()}:"
        tests: dict[str, list[str]] = {}
        for test, why in judged:
            tests.setdefault(why, []).append(test)
        for why, alike in tests.items():
            # pytest has listed all that failed, with their errors; a test that is gone is named here alone.
            named = why.startswith(_GONE) or self._config.get_verbosity() > 0
            yield f"  {why}" if named else f"  {why}  ({plural(len(alike), 'test')})"
            yield from (f"      {test}" for test in alike if named)
        yield "If that is intended, pass --mps-update-manifest."

    def _section(self, groups: Groups) -> Iterator[str]:
        yield from self._block("Operators without an MPS kernel:", self._listed(groups.missing))
        yield from self._block("Refused by MPS:", self._listed(groups.refused))
        raised = [entry for entry in self._listed(groups.raised) if entry.fix]
        yield from self._block("Raised on any Mac:", raised)
        yield from self._block("Operators that ran on the CPU:", groups.fallbacks)
        yield from self._block("Lines that wait for the GPU repeatedly:", groups.waits, with_fix=False)
        refusals = [*groups.missing, *groups.refused]
        if groups.caught and refusals:
            yield f"{groups.caught:,} more in tests that did not fail."
        left = sum(entry.expected for entry in refusals) if not self._lists_all() else 0
        if left:
            yield f"Left out: {plural(left, 'line')} of tests that fail as expected (-v shows {_it_or_them(left)})."

    def _real_kernels(self, facts: list[Facts]) -> Iterator[str]:
        if self._state.kernels == "real":
            from anymps.report import own_kernels_sentence

            calls, real = sum(test.calls for test in facts), sum(test.real for test in facts)
            yield own_kernels_sentence(real, calls, self._state.kernels_named)

    def _lists_all(self) -> bool:
        return self._settings.update_manifest or self._config.get_verbosity() > 0

    def _listed(self, groups: list[Group]) -> list[Group]:
        """What nobody expected yet; everything while the manifest is written, or with `-v`."""
        return groups if self._lists_all() else [entry for entry in groups if not entry.expected]

    def _block(self, title: str, groups: list[Group], *, with_fix: bool = True) -> Iterator[str]:
        """Lines of one kind; what is said of several lines alike is said once."""
        if not groups:
            return
        yield title
        shown = groups if self._config.get_verbosity() > 0 else groups[:_SHOWN]
        heads: dict[tuple[str, str], list[Group]] = {}
        for entry in shown:
            heads.setdefault((entry.head(), entry.fix if with_fix else ""), []).append(entry)
        for (head, fix), alike in heads.items():
            yield f"  {head}"
            if fix:
                yield f"  fix: {fix}"
            for entry in alike:
                expected = " (expected)" if entry.expected else ""
                yield f"    {times(entry.count)}{expected}  {place(entry.site, self._root)}"
                made = entry.refusal.origin if entry.refusal is not None else None
                if made is not None and made.known and (made.file, made.line) != (entry.site.file, entry.site.line):
                    verb = "raised" if entry.refusal is not None and entry.refusal.kind is RefusalKind.INDEX else "made"
                    yield f"      {verb} at {place(made, self._root)}"
                yield f"      in {names(test or _NO_TEST for test in entry.tests)}"
        left = len(groups) - len(shown)
        if left > 0:
            yield f"  and {plural(left, 'more line')} (-v shows {_it_or_them(left)})"

    def _name(self) -> str:
        return self._relative(self._manifest.path) if self._manifest is not None else ""

    def _relative(self, path: Path) -> str:
        return project_path(str(path), (self._root,))


def _unused(tests: int) -> str:
    """What to say of a session in which nothing reached the device."""
    return "The test did not use mps" if tests == 1 else f"None of {tests:,} tests used mps"


def _it_or_them(number: int) -> str:
    return "it" if number == 1 else "them"
