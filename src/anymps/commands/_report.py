"""`anymps report`: shows a recording again."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anymps._command_settings import ReportSettings
from anymps._errors import UsageError
from anymps._settings import FORMATS
from anymps.commands._help import Command
from anymps.commands._judge import Judge
from anymps.commands._options import takes
from anymps.commands._recordings import opened
from anymps.commands._show import show
from anymps.findings import Story, read_operations
from anymps.report import STDOUT, Output, Outputs

if TYPE_CHECKING:
    from anymps.findings import ProfiledOperation
    from anymps.record import Recording

_LARGEST_LOG = 1 << 26  # characters


@click.command(cls=Command, short_help="Show the full report of the last run, or of recordings.")
@takes("report")
@click.argument("files", metavar="[FILE]...", type=click.Path(path_type=Path), nargs=-1)
def report(asked: ReportSettings, files: tuple[Path, ...]) -> int:
    """Show the report of the last `anymps run`, or of recordings that `--record FILE` made. Needs no torch.

    Several recordings are shown as one: shards of a suite, ranks of a training, or several runs. All must have the same
    torch release and the same Mac; each is a process, named after its file.
    """
    outputs = Outputs((Output(asked.form, asked.output),), asked.root)
    with opened(files, outputs, "name a recording, or run a script with `anymps run` first") as recording:
        judge = Judge(_start(recording, asked.root), asked)
        selection = judge.judge(recording)
        story = Story.of(recording, _measured(asked.gpu_log) if asked.gpu_log is not None else ())
        if asked.form == FORMATS[0] and asked.output == STDOUT:
            # As wide as the terminal, and in colour there.
            show(story, selection.findings, sys.stdout, brief=not asked.verbose)
        else:
            outputs.write(story, selection.findings, sys.stdout)
        return judge.conclude(recording, selection)


def _measured(log: Path) -> tuple[ProfiledOperation, ...]:
    """The table of torch's own profiler in a log. Raises UsageError if there is none."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            operations = read_operations(file.read(_LARGEST_LOG))
    except OSError as error:
        raise UsageError(f"{log} cannot be read: {error.strerror}") from error
    if not operations:
        raise UsageError(
            f"{log} has no table of operations: run the script on a Mac with PYTORCH_MPS_LOG_PROFILE_INFO=16, and keep "
            "what it prints on stderr"
        )
    return operations


def _start(recording: Recording, root: str | None) -> Path:
    """Where the settings are looked for: at the recorded script if it lies below us or `root`, else where we are.

    A recording may come from elsewhere; it is not for it to say which files are read.
    """
    directory, script = recording.run.directory, recording.run.script
    if directory and script:
        with suppress(OSError, ValueError):  # not a file name
            place = Path(directory, script).resolve()
            if (
                any(place.is_relative_to(above) for above in (Path.cwd(), Path(root or ".").resolve()))
                and place.exists()
            ):
                return place
    return Path.cwd()
