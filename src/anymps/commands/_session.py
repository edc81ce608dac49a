"""The session of `anymps run`: switches the device on, records, and shows the report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._command_settings import RunSettings
from anymps._errors import RecordingError
from anymps._settings import asked_for
from anymps.children import ChildParts, ChildSettings
from anymps.commands._judge import UNUSED, Judge, is_unused
from anymps.commands._last_run import LastRun, last_recording
from anymps.commands._show import say, show, show_summary
from anymps.commands._target import Target
from anymps.commands.live import Live, LivePage
from anymps.findings import Story, nothing_ran
from anymps.report import Outputs, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anymps.capture import Capture
    from anymps.commands._kernel_capture import KernelCapture
    from anymps.findings import Finding
    from anymps.numerics import NumberCheck
    from anymps.record import Recording


class RunSession:
    """The real `Session` of `run_target`: `anymps.enable`, `anymps.record`, `anymps.findings`, `anymps.report`."""

    def __init__(self, asked: RunSettings, outputs: Outputs | None = None) -> None:
        self._asked, self._outputs = asked, outputs or Outputs()
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._capture: Capture | KernelCapture | None = None
        self._judge: Judge | None = None
        self._last = LastRun()
        self._place: Path | None = None
        self._recording: Recording | None = None
        self._children = ChildParts()
        self._live: Live | None = None
        self._page: LivePage | None = None
        self._numbers: NumberCheck | None = None

    def start(self, target: Target) -> None:
        """Switch the device on and begin to record.

        Raises AnympsError: the device cannot be had, is not the required one, a file cannot be written, or the settings
        or the baseline of the project make no sense.
        """
        self._judge = Judge(target.place, self._asked)
        self._asked = asked = self._asked.filled(self._judge.project)
        self._outputs.check(asked.record)
        if asked.record is not None:
            from anymps.record import check_recordable

            check_recordable(asked.record)
        asked.hand_on()
        self._enable()
        try:
            self._record(asked.record or self._last.open(), target)
        except RecordingError:
            if asked.record is not None:
                raise
            self._record(None, target)  # the report needs no file
        self._watch_children()

    def _enable(self) -> None:
        import anymps

        anymps.enable(**self._asked.device())  # it refuses before anything is built

    def _watch_children(self) -> None:
        asked = self._asked
        if asked.children:
            self._children.open(ChildSettings(asked.mac, asked.source, asked.steps, asked.arguments))
        else:
            self._children.leave_alone()

    def _record(self, place: Path | None, target: Target) -> None:
        import anymps

        arguments = list(target.arguments) if self._asked.arguments else []
        asked = self._asked
        capture = anymps.record(place, script=target.name, argv=arguments, source=asked.source, steps=asked.steps)
        self._capture = capture.__enter__()
        if asked.torch:
            capture.note_fact("times_of", asked.torch)
        self._place = place
        if (which := asked_for("check_numbers")) is not None:
            from anymps.numerics import start_checking

            self._numbers = start_checking(which)
        if asked.live:
            self._live = Live(capture, self._stderr)
            self._live.start()
            self._write_pages(capture, target)

    def _write_pages(self, capture: Capture, target: Target) -> None:
        """Write the pages that were asked for while the script runs, too; without a file they come at its end alone."""
        pages = [output for output in self._outputs.items if output.form == "html" and not output.to_stdout]
        if pages and self._place is not None:
            self._page = LivePage(capture, self._place, pages, target.place, self._asked)
            self._page.start()

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording and show the report.

        3 if `--fail-on` says so, 2 if the recording is not whole, 4 if nothing ran on mps, else 0.
        """
        self._children.wait()
        self._close(ending)
        if self._capture is None:
            return 0
        asked, judge = self._asked, self._judge
        if asked.steps is not None and not self._capture.has_begun and self._recording is None:
            return self._not_begun(asked.steps, self._capture.steps_seen)
        failure = self._capture.failure
        needed = asked.record is not None or bool(self._outputs) or (judge is not None and judge.may_fail)
        lost = failure.exit_code if failure is not None and needed else 0
        recording = self._recording or self._capture.recording
        kept = self._last.keep()
        nothing_to_say = judge is not None and not (asked.report or self._outputs or judge.may_fail)
        if judge is None or (nothing_to_say and not nothing_ran(recording)):
            return lost
        selection = judge.judge(recording)
        self._report(recording, selection.findings, kept)
        wanted = judge.conclude(recording, selection, self._stderr) or lost
        if wanted or asked.write_baseline or not is_unused(selection):
            return wanted
        say(f"exit code {UNUSED}: nothing ran on mps. If that is intended, pass --allow-unused", self._stderr)
        return UNUSED

    def _not_begun(self, steps: tuple[int, int], seen: int) -> int:
        """The end of a script that never came to the steps to record."""
        self._last.keep()
        first, last = steps
        say(
            f"nothing was recorded: the script made {plural(seen, 'training step')}, and --steps is {first}:{last}",
            self._stderr,
        )
        return 0 if self._asked.allow_unused else UNUSED

    def _report(self, recording: Recording, findings: Sequence[Finding], kept: bool) -> None:
        """Show the report that was asked for, and write the files; `kept` as the last run's recording."""
        asked = self._asked
        if not (asked.report or self._outputs):
            return
        story = Story.of(recording)
        try:
            if asked.report and asked.verbose:
                show(story, findings, self._stderr)
            elif asked.report:
                show_summary(story, findings, self._whole(kept), self._stderr)
        finally:  # a terminal that is gone is no reason to lose the files
            self._outputs.write(story, findings, self._stdout)

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording; no report, but a page that says it is of a run that goes on must not stay."""
        self._close(ending)
        kept = self._last.keep()
        recording = self._asked.record or (last_recording() if kept else None)
        if self._page is not None and recording is not None:
            self._page.last(recording)

    def _whole(self, kept: bool) -> str:
        """Where the whole report is: a page or a file that was asked for, else the recording that holds it."""
        asked = self._asked
        files = [output.path for output in self._outputs.items if output.form == "html" and not output.to_stdout]
        if files:
            return files[0]
        if asked.record is not None:
            return f"anymps report {shlex.quote(str(asked.record))}"
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
            if self._numbers is not None:
                from anymps.numerics import stop_checking

                stop_checking(self._capture.note_fact)
            self._capture.close(ending)
            joined = self._children.join(self._capture.recording, self._place)
            self._recording = joined.recording
            for line in joined.lines:
                say(line, self._stderr)
        finally:
            self._children.close()
