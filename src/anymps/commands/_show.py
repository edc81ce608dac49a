"""Findings, the report and errors, as the commands need them: shown, and turned into an exit status."""

from __future__ import annotations

__all__ = ["DEFAULT_SEVERITY", "SEVERITIES", "findings_status", "say", "show"]

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from anymps._errors import UsageError
from anymps.commands._outputs import write_file
from anymps.findings import Finding, Severity

if TYPE_CHECKING:
    from anymps.record import Recording

SEVERITIES = tuple(severity.label for severity in Severity)
DEFAULT_SEVERITY = Severity.WARNING.label
FINDINGS = 3


def say(problem: object) -> None:
    """Print an error as one line on stderr, in the name of the program."""
    print(f"anymps: {str(problem).removeprefix('anymps: ')}", file=sys.stderr)


def show(recording: Recording, findings: Sequence[Finding], path: Path | None, stream: TextIO) -> None:
    """Write the terminal report to a file, or to ``stream`` if no file is named.

    Raises UsageError if the file or the stream cannot be written.
    """
    from anymps.report import print_terminal

    try:
        if path is None:
            print_terminal(recording, findings, stream)
            stream.flush()
        else:
            text = io.StringIO()
            print_terminal(recording, findings, text)
            write_file([text.getvalue()], path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"the report cannot be shown: {error.strerror}") from error


def findings_status(findings: Sequence[Finding], threshold: str | None) -> int:
    """Return 3 if a finding is of the severity ``threshold`` or above, else 0; without a threshold always 0."""
    if threshold is None:
        return 0
    least = Severity[threshold.upper()]
    # The most severe has the smallest number.
    return FINDINGS if any(finding.severity <= least for finding in findings) else 0
