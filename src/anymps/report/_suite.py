"""What a recording of `pytest --mps` knows of its tests: how many ran, and which errors they were expected to meet."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.findings import Finding, is_refusal
from anymps.record import Recording
from anymps.report._text import clean, plural


def is_suite(recording: Recording) -> bool:
    """Whether tests ran, rather than a script."""
    return isinstance(recording.meta.get("suite"), dict)


def subject(recording: Recording) -> str:
    """What ran, as the reader calls it."""
    return "code" if is_suite(recording) else "script"


def session(recording: Recording, mac: str, *, used: bool) -> str:
    """How the tests ended, on that Mac; `used` is whether anything reached mps."""
    tests, failed, excused = _number(recording, "tests"), _number(recording, "failed"), _number(recording, "excused")
    virtual = recording.meta.get("virtual") is not False
    if not tests:
        return f"No test ran, so this says nothing about {mac}."
    ending = recording.meta.get("ending")
    status = ending.get("status") if isinstance(ending, dict) else None
    if status not in (0, 1):
        return f"The session did not finish: {plural(tests, 'test')} ran on {mac}."
    if not used:
        return f"None of {plural(tests, 'test')} used mps, so this says nothing about {mac}."
    if failed:
        return f"{failed:,} of {plural(tests, 'test')} {'would fail' if virtual else 'failed'} on {mac}."
    words = f"{plural(tests, 'test')} {'would end' if virtual else 'ended'} as expected on {mac}"
    return f"{words}, {excused:,} of them with a failure." if excused else f"{words}."


def _number(recording: Recording, name: str) -> int:
    suite = recording.meta.get("suite")
    number = suite.get(name) if isinstance(suite, dict) else 0
    return number if isinstance(number, int) else 0


def expected(recording: Recording, finding: Finding) -> str:
    """Why an error is no news: the manifest, a mark or the test itself expects it. The empty text if it is news."""
    suite = recording.meta.get("suite")
    rows = suite.get("expected") if isinstance(suite, dict) else None
    if not isinstance(rows, list) or not finding.site.known or not is_refusal(finding):
        return ""
    place = finding.site.file_line
    for row in rows:
        if isinstance(row, dict) and (row.get("file"), row.get("line")) == place:
            return clean(str(row.get("why", ""))) or "expected"
    return ""


def news(recording: Recording, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that nobody expects."""
    return [finding for finding in findings if not expected(recording, finding)]
