"""Writes the reports of a recording in a separate process, which the program's Python cannot affect."""

from __future__ import annotations

import base64
import pickle
import sys
import tempfile
from pathlib import Path

from anymps._errors import AnympsError
from anymps._own_process import FreshProcess, own_worker
from anymps._text import last_line
from anymps.report import Outputs


def write_reports(process: FreshProcess, recording: Path, project: Path, outputs: Outputs) -> str:
    """Have a process write the reports, as the settings of the `project` say; why it could not, empty if it could."""
    order = base64.b64encode(pickle.dumps((recording, project, outputs), protocol=4)).decode()
    with tempfile.TemporaryFile() as errors:
        status = process.run([*own_worker(__name__), order], errors=errors.fileno())
        errors.seek(0)
        said = last_line(errors.read().decode(errors="replace"))
    return status if isinstance(status, str) else said if status else ""


def main() -> None:
    """The process: its last argument is the order."""
    from anymps.findings import Story, find, read_settings, roots, select
    from anymps.record import Recording

    path, project, outputs = pickle.loads(base64.b64decode(sys.argv[-1]))
    try:
        settings = read_settings(project)
        with Recording.open(path) as recording:
            found = select(find(recording), settings, roots(recording, settings))
            outputs.write(Story.of(recording), found.findings, sys.stdout)
    except AnympsError as error:
        sys.exit(error.reason)
