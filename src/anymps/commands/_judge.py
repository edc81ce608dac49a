"""Which findings a command reports and fails for, by its options and the project's settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anymps._errors import UsageError
from anymps._settings import Settings
from anymps._text import plural
from anymps.commands._show import say
from anymps.findings import parse_fail_on, read_baseline, read_settings
from anymps.report import check_file

if TYPE_CHECKING:
    from anymps.findings import Selection
    from anymps.record import Recording

NOTHING_ASKED: Final = Settings()

FINDINGS = 3
UNUSED = 4  # nothing ran on mps


class Judge:
    """Finds and sorts out. Settings and baseline are read when it is made, so that mistakes show before a run."""

    def __init__(self, start: Path, asked: Settings = NOTHING_ASKED) -> None:
        """Read the project's settings for a script or directory, and the baseline; what was asked for goes before them.

        Raises UsageError: a file cannot be read or makes no sense, or there is no place for the baseline.
        """
        self.project = project = read_settings(start)
        self._allow_unused = asked.allow_unused
        self._path = asked.baseline or project.baseline
        self._write = asked.write_baseline
        if self._write and self._path is None:
            raise UsageError("--write-baseline needs --baseline FILE, or `baseline` under [tool.anymps]")
        if self._write and self._path is not None:
            check_file(self._path)
        self._baseline = read_baseline(self._path) if self._path is not None and not self._write else None
        self._fail_on = project.fail_on if asked.fail_on is None else parse_fail_on(asked.fail_on)

    @property
    def may_fail(self) -> bool:
        """Whether findings can change the exit status, or the baseline."""
        return self._fail_on is not None or self._write

    def judge(self, recording: Recording) -> Selection:
        """The recording's findings, sorted out."""
        from anymps.findings import NOTHING_RAN, find, roots, select  # the rules take their time to load

        allowed = {NOTHING_RAN.id} if self._allow_unused else set()
        project = replace(self.project, disable=self.project.disable | allowed)
        return select(find(recording), project, roots(recording, project), self._baseline)

    def conclude(self, recording: Recording, selection: Selection) -> int:
        """Say what was left out, write the baseline if asked to, and return 3 if the findings fail the run, else 0.

        Raises UsageError if the baseline cannot be written.
        """
        left_out = [f"{len(selection.known)} known ({self._path})"] if selection.known else []
        left_out += [f"{len(selection.suppressed)} by a comment in the code"] if selection.suppressed else []
        if left_out:
            say(f"findings left out: {', '.join(left_out)}")
        for known in selection.gone:
            where = " ".join(part for part in (known.file, known.function) if part) or "an unknown line"
            say(f"in {self._path}, but not in this run: {known.what} at {where}: {known.source}")
        if self._write and self._path is not None:
            from anymps.findings import roots, write_baseline

            number = write_baseline(self._path, selection.findings, roots(recording, self.project))
            say(f"{self._path} now lists {plural(number, 'finding')}")
            return 0
        # The most severe has the smallest number.
        worst = min((finding.severity for finding in selection.findings), default=None)
        return FINDINGS if self._fail_on is not None and worst is not None and worst <= self._fail_on else 0


def is_unused(selection: Selection) -> bool:
    """Whether a run is to fail because nothing ran on mps: its finding is there, and nothing has left it out."""
    from anymps.findings import NOTHING_RAN

    return any(finding.id == NOTHING_RAN.id for finding in selection.findings)
