"""`anymps run notebook.ipynb`: runs the cells in a new kernel, and judges what it recorded."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anymps._errors import UsageError
from anymps.commands._session import RunSession
from anymps.commands._target import Target, TargetError


def is_notebook(name: str) -> bool:
    """Whether a script's name is a notebook's."""
    return name.lower().endswith(".ipynb")


class NotebookSession(RunSession):
    """A session whose device and recording are in the kernel."""

    device: dict[str, Any]
    recording: dict[str, Any]

    def _enable(self) -> None:
        self.device = self._asked.device()

    def _watch_children(self) -> None:
        self._children.leave_alone()  # the kernel is one, and records by itself

    @property
    def _recorded_by(self) -> int:
        return 0  # the kernel, whose number nobody knows yet

    def _record(self, place: Path, target: Target) -> None:
        self.recording = {
            "path": str(place.absolute()),
            "script": str(Path(target.name).absolute()),
            "argv": [],
            "source": self._asked.source,
            "steps": self._asked.steps,
        }
        self._recording = place


@dataclass(frozen=True)
class NotebookTarget(Target):
    """A notebook, which runs as its session says."""

    session: NotebookSession = field(kw_only=True)

    def check(self) -> None:
        """Also raise UsageError if the notebook cannot be read, or what runs it is not installed."""
        super().check()
        if self.arguments:
            raise UsageError(f"a notebook accepts no arguments: {' '.join(self.arguments)}")
        from anymps.notebook import read

        read(Path(self.name))

    def execute(self) -> None:
        """Run the cells; one that fails ends the run with status 1, as a script's exception does."""
        from anymps.notebook import execute

        session, out, err = self.session, sys.stdout, sys.stderr
        try:
            failed = execute(Path(self.name), session.device, session.recording, out, err)
        except UsageError as error:
            raise TargetError(str(error)) from None
        if failed:
            raise SystemExit(1)
