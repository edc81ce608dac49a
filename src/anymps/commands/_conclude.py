"""What follows a run, in a process of its own: its recording is joined with those of its children, judged and shown."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from anymps._errors import RecordingError
from anymps._text import plural
from anymps.children import ChildParts
from anymps.commands._judge import UNUSED, Judge, is_unused
from anymps.commands._recordings import keep_as_last
from anymps.commands._session import Conclusion
from anymps.commands._show import say, show, show_summary
from anymps.findings import Finding, Story, nothing_ran
from anymps.record import Recording


def conclude(order: Conclusion, shown: bool) -> int:
    """Do all of it, or all but the report that is `shown` at the end.

    3 if `--fail-on` says so, 2 if the recording is not whole, 4 if nothing ran on mps, else 0.
    """
    if not shown and not order.recording.exists():
        return 0  # a notebook whose kernel has not begun
    with whole_recording(order) as (recording, kept):
        return _report(order, recording, kept) if shown else 0


@contextmanager
def whole_recording(order: Conclusion) -> Iterator[tuple[Recording, bool]]:
    """The recording of a run with those of its children, and whether it is kept as that of the last run.

    Raises RecordingError if it is of another run by now.
    """
    with ExitStack() as stack:
        recording = stack.enter_context(Recording.open(order.recording))
        if order.process not in (0, recording.run.process):
            raise RecordingError(f"{order.recording} belongs to another run by now, so there is no report of this one")
        if order.parts is not None:
            joined = ChildParts(order.parts).join(recording, order.recording)
            for line in joined.lines:
                say(line)
            if joined.recording is not None:
                recording = stack.enter_context(joined.recording)
        yield recording, order.passing and keep_as_last(order.recording)


def _report(order: Conclusion, recording: Recording, kept: bool) -> int:
    asked = order.asked
    if asked.steps is not None and asked.steps[0] and not recording.run.begin_ns and not recording.parts:
        seen = plural(recording.run.steps_seen or 0, "training step")
        say(f"nothing was recorded: the script made {seen}, and --steps is {asked.steps[0]}:{asked.steps[1]}")
        return 0 if asked.allow_unused else UNUSED
    judge = Judge(order.place, asked)
    own = recording.parts[0] if recording.parts else recording.run
    needed = asked.record is not None or bool(order.outputs) or judge.may_fail
    lost = 0 if own.complete or not needed else RecordingError.exit_code
    if not (asked.report or order.outputs or judge.may_fail or nothing_ran(recording)):
        return lost
    selection = judge.judge(recording)
    _show(order, recording, selection.findings, kept)
    wanted = judge.conclude(recording, selection) or lost
    if wanted or asked.write_baseline or not is_unused(selection):
        return wanted
    say(f"exit code {UNUSED}: nothing ran on mps. If that is intended, pass --allow-unused")
    return UNUSED


def _show(order: Conclusion, recording: Recording, findings: Sequence[Finding], kept: bool) -> None:
    """Show the report that was asked for, and write the files."""
    asked = order.asked
    if not (asked.report or order.outputs):
        return
    story = Story.of(recording)
    try:
        if asked.report and asked.verbose:
            show(story, findings, sys.stderr)
        elif asked.report:
            show_summary(story, findings, _place_of_whole(order, kept), sys.stderr)
    finally:  # write the files even if the terminal is gone
        order.outputs.write(story, findings, sys.stdout)


def _place_of_whole(order: Conclusion, kept: bool) -> str:
    """Where the whole report is: a page that was asked for, else the recording that holds it."""
    if order.outputs.pages:
        return order.outputs.pages[0].path
    if not order.passing:
        return f"anymps report {shlex.quote(str(order.asked.record))}"
    return "anymps report" if kept else "anymps run -v ..."
