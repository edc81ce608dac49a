"""`--mps-report`: the session's recording in the forms of `anymps report`."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from anymps._command_settings import PytestSettings
from anymps._errors import AnympsError
from anymps._own_process import FreshProcess, own_call
from anymps._paths import whole_path
from anymps._settings import FORMATS
from anymps._text import last_line
from anymps.cleanup import PrivateFolder
from anymps.findings import read_settings
from anymps.report import STDOUT, Output, Outputs


class Reports:
    """Checked before the tests run, written after them. `path` is the recording they are made from."""

    def __init__(self, config: pytest.Config, settings: PytestSettings) -> None:
        """Raises UsageError, in one line, for what can never be written."""
        self._root = config.rootpath
        self._process = FreshProcess()
        items = tuple(_output(text, settings.reports_from) for text in settings.reports)
        self._outputs = Outputs(items, str(config.rootpath))
        try:
            self._outputs.check(settings.recording)
            read_settings(config.rootpath)
        except AnympsError as error:
            raise pytest.UsageError(f"--mps-report: {error}") from None
        if settings.recording is not None:
            self.path = settings.recording
        else:
            scratch = PrivateFolder("anymps-pytest-")
            self.path = scratch.path / "run.anymps"
            config.add_cleanup(partial(_remove, scratch, os.getpid()))
        self._command = own_call(f"{__name__}:write_reports", self.path, self._root, self._outputs)

    def write(self) -> tuple[list[str], bool]:
        """Write all of them. What to say about it, and whether all is well."""
        with tempfile.TemporaryFile() as errors:
            status = self._process.run(self._command, errors=errors.fileno())
            errors.seek(0)
            said = last_line(errors.read().decode(errors="replace"))
        if status:
            return [f"--mps-report: {status if isinstance(status, str) else said}"], False
        return [f"mps report ({output.form}): {output.path}" for output in self._outputs.items], True


def write_reports(path: Path, project: Path, outputs: Outputs) -> None:
    """Write the reports of a recording, as the settings of the project say. Another process, whose Python no test has
    changed, calls this."""
    from anymps.findings import Story, find, roots, select
    from anymps.record import Recording

    settings = read_settings(project)
    with Recording.open(path) as recording:
        found = select(find(recording), settings, roots(recording, settings))
        outputs.write(Story.of(recording), found.findings, sys.stdout)


def _output(text: str, place: Path) -> Output:
    try:
        output = Output.parse(text, FORMATS)
    except AnympsError as error:
        raise pytest.UsageError(f"--mps-report: {error}") from None
    if output.path == STDOUT:
        raise pytest.UsageError(f"--mps-report {text}: standard output is pytest's own, name a file")
    return Output(output.form, str(whole_path(place / output.path)))


def _remove(folder: PrivateFolder, process: int) -> None:
    """Take away a folder, but not from a forked child that came to the end of the session too."""
    if os.getpid() == process:
        folder.remove()
