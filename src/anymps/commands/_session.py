"""The session of `anymps run`: switches the device on, records, and shows the report."""

from __future__ import annotations

__all__ = ["RunOptions", "RunSession"]

import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._errors import RecordingError, UsageError
from anymps.children import ChildParts, ChildSettings
from anymps.commands._judge import NOTHING_CHOSEN, UNUSED, Choice, Judge, is_unused
from anymps.commands._last_run import LastRun, last_recording
from anymps.commands._outputs import Outputs
from anymps.commands._show import say, show, show_summary
from anymps.commands._target import Target
from anymps.commands.live import Live, LivePage
from anymps.findings import nothing_ran
from anymps.report import plural

if TYPE_CHECKING:
    from anymps.capture import Capture
    from anymps.commands._kernel_capture import KernelCapture
    from anymps.record import Recording


@dataclass(frozen=True)
class RunOptions:
    """The options of `anymps run`, by the names of its flags."""

    mac: str | None = None
    torch: str = ""
    fallback: bool | None = None
    record: Path | None = None
    require: str | None = None
    source: str | None = None
    strict_copies: bool = False
    check_shaders: bool = False
    start_method: str | None = None
    cuda_as_mps: bool = False
    alone: bool = False
    children: bool = True
    steps: tuple[int, int] | None = None
    kernels: str | None = None
    live: bool = False
    arguments: bool = True
    report: bool = True
    verbose: bool = False
    report_to: Path | None = None
    choice: Choice = NOTHING_CHOSEN
    outputs: Outputs = field(default_factory=Outputs)


class RunSession:
    """The real `Session` of `run_target`: `anymps.enable`, `anymps.record`, `anymps.findings`, `anymps.report`."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._capture: Capture | KernelCapture | None = None
        self._judge: Judge | None = None
        self._last = LastRun()
        self._place: Path | None = None
        self._recording: Recording | None = None
        self._children = ChildParts()
        self._live: Live | None = None
        self._page: LivePage | None = None

    def start(self, target: Target) -> None:
        """Switch the device on and begin to record.

        Raises AnympsError: the device cannot be had, is not the required one, a file cannot be written, or the settings
        or the baseline of the project make no sense.
        """
        options = self._options
        if options.report_to is not None:
            _check_writable(options.report_to)
        self._judge = Judge(Path.cwd() if target.is_module else Path(target.name), options.choice)
        mac = options.mac
        if mac is None and not os.environ.get("ANYMPS_MAC"):
            mac = self._judge.settings.mac or None
        options.outputs.check(options.record)
        from anymps.device import ALONE_VARIABLE, STRICT_COPIES_VARIABLE
        from anymps.metal import CHECK_VARIABLE

        if options.strict_copies:
            os.environ[STRICT_COPIES_VARIABLE] = "1"  # child processes do the same
        if options.alone:
            os.environ[ALONE_VARIABLE] = "1"
        if options.check_shaders:
            os.environ[CHECK_VARIABLE] = "1"
        self._enable(mac)
        try:
            self._record(options.record or self._last.open(), target)
        except RecordingError:
            if options.record is not None:
                raise
            self._record(None, target)  # the report needs no file
        self._watch_children(mac)

    def _enable(self, mac: str | None) -> None:
        import anymps

        options = self._options
        # The device's own job: the fallback variable, and to refuse before anything is built.
        anymps.enable(
            mac,
            fallback=options.fallback,
            require=options.require,
            start_method=options.start_method,
            cuda_as_mps=options.cuda_as_mps or None,
            kernels=options.kernels,
        )

    def _watch_children(self, mac: str | None) -> None:
        options = self._options
        if options.children:
            self._children.open(ChildSettings(mac, options.source, options.steps, options.arguments))
        else:
            self._children.leave_alone()

    def _record(self, place: Path | None, target: Target) -> None:
        import anymps

        arguments = list(target.arguments) if self._options.arguments else []
        options = self._options
        capture = anymps.record(place, script=target.name, argv=arguments, source=options.source, steps=options.steps)
        self._capture = capture.__enter__()
        if options.torch:
            capture.note_fact("times_of", options.torch)
        self._place = place
        if options.live:
            self._live = Live(capture, self._stderr)
            self._live.start()
            self._write_pages(capture, target)

    def _write_pages(self, capture: Capture, target: Target) -> None:
        """Write the pages that were asked for while the script runs, too; without a file they come at its end alone."""
        pages = [it for it in self._options.outputs.items if it.form == "html" and not it.to_stdout]
        if pages and self._place is not None:
            start = Path.cwd() if target.is_module else Path(target.name)
            self._page = LivePage(capture, self._place, pages, start, self._options.choice)
            self._page.start()

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording and show the report.

        3 if `--fail-on` says so, 2 if the recording is not whole, 4 if nothing ran on mps, else 0.
        """
        self._children.wait()
        self._close(ending)
        if self._capture is None:
            return 0
        options, judge = self._options, self._judge
        if options.steps is not None and not self._capture.has_begun and self._recording is None:
            self._last.keep()
            made = plural(self._capture.steps_seen, "step")
            first, last = options.steps
            say(f"nothing was recorded: the optimizer made {made}, and --steps is {first}:{last}", self._stderr)
            return 0 if options.choice.allow_unused else UNUSED
        failure = self._capture.failure
        asked = options.record is not None or bool(options.outputs) or (judge is not None and judge.may_fail)
        lost = failure.exit_code if failure is not None and asked else 0
        recording = self._recording or self._capture.recording
        kept = self._last.keep()
        nothing_to_say = judge is not None and not (options.report or options.outputs or judge.may_fail)
        if judge is None or (nothing_to_say and not nothing_ran(recording)):
            return lost
        selection = judge.judge(recording)
        try:
            if options.report and (options.verbose or options.report_to is not None):
                show(recording, selection.findings, options.report_to, self._stderr)
            elif options.report:
                show_summary(recording, selection.findings, self._whole(kept), self._stderr)
        finally:  # a terminal that is gone is no reason to lose the files
            options.outputs.write(recording, selection.findings, self._stdout)
        wanted = judge.conclude(recording, selection, self._stderr) or lost
        if wanted or options.choice.write_baseline or not is_unused(selection):
            return wanted
        say(f"exit code {UNUSED}: nothing ran on mps. If that is intended, pass --allow-unused", self._stderr)
        return UNUSED

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording; no report, but a page that says it is of a run that goes on must not stay."""
        self._close(ending)
        kept = self._last.keep()
        recording = self._options.record or (last_recording() if kept else None)
        if self._page is not None and recording is not None:
            self._page.last(recording)

    def _whole(self, kept: bool) -> str:
        """Where the whole report is: a page or a file that was asked for, else the recording that holds it."""
        options = self._options
        files = [output.path for output in options.outputs.items if output.form == "html" and not output.to_stdout]
        if files:
            return files[0]
        if options.record is not None:
            return f"anymps report {shlex.quote(str(options.record))}"
        return "anymps report" if kept else "anymps run -v ..."

    def _close(self, ending: dict[str, object]) -> None:
        self._stdout, self._stderr = sys.stdout, sys.stderr  # the script may have closed those from before
        if self._live is not None:
            self._live.stop()
        if self._page is not None:
            self._page.stop()
        try:
            if self._capture is None:
                return
            self._capture.close(ending)
            joined = self._children.join(self._capture.recording, self._place)
            self._recording = joined.recording
            for line in joined.lines:
                say(line, self._stderr)
        finally:
            self._children.close()


def _check_writable(path: Path) -> None:
    """Find out before the run, not after it, that a report cannot be written."""
    if path.is_dir():
        raise UsageError(f"--report-to {path} is a directory: name a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--report-to {path}: there is no directory {path.absolute().parent}")
