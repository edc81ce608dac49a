"""What a recording of `pytest --mps` knows of its tests: how many ran, and which errors they were expected to meet."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.findings import Finding, is_refusal
from anymps.record import Recording
from anymps.report._text import clean


def is_suite(recording: Recording) -> bool:
    """Whether tests ran, rather than a script."""
    return isinstance(recording.meta.get("suite"), dict)


def tests_run(recording: Recording) -> int:
    """How many tests ran; 0 for a script."""
    suite = recording.meta.get("suite")
    number = suite.get("tests") if isinstance(suite, dict) else 0
    return number if isinstance(number, int) else 0


def expected(recording: Recording, finding: Finding) -> str:
    """Why an error is no news: the manifest, a mark or the test itself expects it. The empty text if it is news."""
    suite = recording.meta.get("suite")
    rows = suite.get("expected") if isinstance(suite, dict) else None
    if not isinstance(rows, list) or not finding.site.known or not is_refusal(finding):
        return ""
    place = (finding.site.file, finding.site.line)
    for row in rows:
        if isinstance(row, dict) and (row.get("file"), row.get("line")) == place:
            return clean(str(row.get("why", ""))) or "expected"
    return ""


def news(recording: Recording, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that nobody expects."""
    return [finding for finding in findings if not expected(recording, finding)]
