"""What a recording of `pytest --mps` knows of its tests: how many ran, and which errors they were expected to meet."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.findings import Finding, is_refusal
from anymps.record import Meta, Suite
from anymps.report._text import clean, plural


def session(run: Meta, suite: Suite, mac: str, *, unused: bool) -> str:
    """How the tests ended, on that Mac."""
    tests = plural(suite.tests, "test")
    if not suite.tests:
        return f"No test ran, so this says nothing about {mac}."
    if run.ending.status not in (0, 1):
        return f"The session did not finish: {tests} ran on {mac}."
    if unused:
        return f"None of {tests} used mps, so this says nothing about {mac}."
    if suite.failed:
        return f"{suite.failed:,} of {tests} {'failed' if run.on_mac else 'would fail'} on {mac}."
    words = f"{tests} {'ended' if run.on_mac else 'would end'} as expected on {mac}"
    return f"{words}, {suite.excused:,} of them with a failure." if suite.excused else f"{words}."


def expected(finding: Finding, suite: Suite | None) -> str:
    """Why an error is no news: the manifest, a mark or the test itself expects it. The empty text if it is news."""
    if suite is None or not finding.site.known or not is_refusal(finding):
        return ""
    why = (row.why for row in suite.expected if (row.file, row.line) == finding.site.file_line)
    return next((clean(words) or "expected" for words in why), "")


def news(findings: Sequence[Finding], suite: Suite | None) -> list[Finding]:
    """The findings that nobody expects."""
    return [finding for finding in findings if not expected(finding, suite)]
