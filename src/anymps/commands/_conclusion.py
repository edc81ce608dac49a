"""What is to become of a run's recording, as the process is told that joins, judges and shows it."""

from __future__ import annotations

import base64
import pickle
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from anymps._command_settings import RunSettings
from anymps._own_process import own_command
from anymps.report import Outputs


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

    def command(self, *, shown: bool) -> list[str]:
        """The command of the process that does it: all of it, or without the report that is `shown` at the end."""
        text = base64.b64encode(pickle.dumps((self, shown), protocol=4)).decode()
        return own_command("--conclude", text)

    @classmethod
    def read(cls, text: str) -> tuple[Conclusion, bool]:
        """What the last word of such a command says: the order, and whether the report is shown."""
        return cast("tuple[Conclusion, bool]", pickle.loads(base64.b64decode(text)))

    def whole(self, kept: bool) -> str:
        """Where the whole report is: a page that was asked for, else the recording that holds it."""
        files = [output.path for output in self.outputs.pages]
        if files:
            return files[0]
        if not self.passing:
            return f"anymps report {shlex.quote(str(self.asked.record))}"
        return "anymps report" if kept else "anymps run -v ..."
