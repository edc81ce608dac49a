"""The session of `anymps run`: switches the device on, records, and has a new process judge and show the recording."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._command_settings import RunSettings
from anymps._errors import RecordingError, UsageError
from anymps._own_process import FreshProcess, own_call
from anymps._settings import asked_for
from anymps.children import ChildParts, ChildSettings
from anymps.cleanup import PrivateFolder
from anymps.commands._judge import Judge
from anymps.commands._recordings import keep_as_last, last_recording, place_of_run
from anymps.commands._target import Target
from anymps.report import Outputs

if TYPE_CHECKING:
    from anymps.capture import Capture
    from anymps.commands._live import Live
    from anymps.numerics import NumberCheck


@dataclass(frozen=True)
class Conclusion:
    """What is to become of the recording of the run of a `process`; paths begin where the command was started.

    `place` is where the project's settings are looked for, `parts` the folder of the child processes' recordings.
    A `passing` recording becomes that of the last run.
    """

    asked: RunSettings
    outputs: Outputs
    place: Path
    recording: Path
    process: int
    parts: Path | None = None
    passing: bool = False


class RunSession:
    """The real `Session` of `run_target`: what the script runs in, and what is to follow."""

    def __init__(self, asked: RunSettings, outputs: Outputs | None = None) -> None:
        self._asked, self._outputs = asked, outputs or Outputs()
        self._process = FreshProcess()
        self._capture: Capture | None = None
        self._scratch: PrivateFolder | None = None
        self._recording = Path()
        self._commands: dict[bool, list[str]] = {}
        self._children = ChildParts()
        self._live: Live | None = None
        self._numbers: NumberCheck | None = None

    def start(self, target: Target) -> None:
        """Switch the device on and begin to record.

        Raises AnympsError: the device cannot be had, is not the required one, a file cannot be written, or the settings
        or the baseline of the project make no sense.
        """
        given = self._asked
        self._asked = asked = given.filled(Judge(target.place, given).project)
        self._outputs.check(asked.record)
        if asked.record is not None:
            from anymps.record import check_recordable

            check_recordable(asked.record)
        asked.hand_on()
        self._enable()
        passing = asked.record is None
        try:
            self._record(asked.record or place_of_run() or self._place_in_scratch(), target)
        except RecordingError:
            if not passing or self._scratch is not None:
                raise
            self._record(self._place_in_scratch(), target)
        self._watch_children()
        order = Conclusion(
            given, self._outputs, target.place, self._recording, self._recorded_by, self._children.folder, passing
        )
        # Now: afterwards the script may have changed all that makes them.
        self._commands = {shown: self._conclusion(order, shown=shown) for shown in (True, False)}

    def _conclusion(self, order: Conclusion, *, shown: bool) -> list[str]:
        """The command of the process that does the rest."""
        return own_call("anymps.commands._conclude:conclude", order, shown)

    def _place_in_scratch(self) -> Path:
        """A file where the system keeps temporary ones, as the last recording has no place."""
        try:
            self._scratch = PrivateFolder("anymps-recording-")
        except OSError:
            raise UsageError("there is no place for the recording: name a file with --record") from None
        return self._scratch.path / "run.anymps"

    @property
    def _recorded_by(self) -> int:
        return os.getpid()

    def _enable(self) -> None:
        import anymps

        anymps.enable(**self._asked.device())  # it refuses before anything is built

    def _watch_children(self) -> None:
        asked = self._asked
        if asked.children:
            self._children.open(ChildSettings(asked.mac, asked.source, asked.steps, asked.arguments))
        else:
            self._children.leave_alone()

    def _record(self, place: Path, target: Target) -> None:
        import anymps

        arguments = list(target.arguments) if self._asked.arguments else []
        asked = self._asked
        capture = anymps.record(place, script=target.name, argv=arguments, source=asked.source, steps=asked.steps)
        self._capture = capture.__enter__()
        self._recording = place
        if asked.torch:
            capture.note_fact("times_of", asked.torch)
        if (which := asked_for("check_numbers")) is not None:
            from anymps.numerics import start_checking

            self._numbers = start_checking(which)
        if asked.live:
            from anymps.commands._live import Live

            self._live = Live(capture, sys.stderr)
            self._live.start()

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording, and have it shown; the exit status that the settings ask for, 0 for none."""
        self._children.wait()
        try:
            self._close(ending)
        finally:
            wanted = self._conclude(shown=True)
        return wanted

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording; no report is shown."""
        try:
            self._close(ending)
        finally:
            self._conclude(shown=False)

    def _close(self, ending: dict[str, object]) -> None:
        if self._live is not None:
            self._live.stop()
        if self._capture is not None:
            if self._numbers is not None:
                from anymps.numerics import stop_checking

                stop_checking(self._capture.note_fact)
            self._capture.close(ending)

    def _conclude(self, *, shown: bool) -> int:
        """Have a new process do the rest; where there is none, the recording is kept, and a line says where it is."""
        status = self._process.run(self._commands[shown])
        if isinstance(status, str):
            kept = self._asked.record or (last_recording() if keep_as_last(self._recording) else self._recording)
            left = self._children.close()
            files = kept if left is None else f"{kept} {left}/*.anymps"
            self._process.tell(f"anymps: there is no report: {status}. See it with: anymps report {files}")
            return UsageError.exit_code
        if self._scratch is not None:
            self._scratch.remove()
        self._children.close()
        return status
