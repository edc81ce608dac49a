"""`--mps-report`: the session's recording in the forms of `anymps report`."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from anymps._command_settings import PytestSettings
from anymps._errors import AnympsError
from anymps._paths import whole_path
from anymps.cleanup import PrivateFolder
from anymps.findings import Story, find, read_settings, roots, select
from anymps.record import Recording
from anymps.report import STDOUT, Output, Outputs


class Reports:
    """Checked before the tests run, written after them. `path` is the recording they are made from."""

    def __init__(self, config: pytest.Config, settings: PytestSettings) -> None:
        """Raises UsageError, in one line, for what can never be written."""
        self._root = config.rootpath
        items = tuple(_output(text, settings.reports_from) for text in settings.reports)
        self._outputs = Outputs(items, str(config.rootpath))
        try:
            self._outputs.check(settings.recording)
            self._settings = read_settings(config.rootpath)
        except AnympsError as error:
            raise pytest.UsageError(f"--mps-report: {error}") from None
        if settings.recording is not None:
            self.path = settings.recording
        else:
            scratch = PrivateFolder("anymps-pytest-")
            self.path = scratch.path / "run.anymps"
            config.add_cleanup(partial(_remove, scratch, os.getpid()))

    def write(self) -> tuple[list[str], bool]:
        """Write all of them. What to say about it, and whether all is well."""
        try:
            with Recording.open(self.path) as recording:
                found = select(find(recording), self._settings, roots(recording, self._settings))
                self._outputs.write(Story.of(recording), found.findings, sys.stdout)
        except AnympsError as error:
            return [f"--mps-report: {error.reason}"], False
        return [f"mps report ({output.form}): {output.path}" for output in self._outputs.items], True


def _output(text: str, place: Path) -> Output:
    try:
        output = Output.parse(text)
    except ValueError as error:
        raise pytest.UsageError(f"--mps-report: {error}") from None
    if output.path == STDOUT:
        raise pytest.UsageError(f"--mps-report {text}: standard output is pytest's own, name a file")
    return Output(output.form, str(whole_path(place / output.path)))


def _remove(folder: PrivateFolder, process: int) -> None:
    """Take away a folder, but not from a forked child that came to the end of the session too."""
    if os.getpid() == process:
        folder.remove()
