"""What a recording of `pytest --mps` knows of its tests: how many ran, and which errors they were expected to meet."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.findings import Finding, Story, is_refusal
from anymps.record import Suite
from anymps.report._text import clean, plural


def session(story: Story, suite: Suite, mac: str) -> str:
    """How the tests ended, on that Mac."""
    tests = plural(suite.tests, "test")
    if not suite.tests:
        return f"No test ran, so this says nothing about {mac}."
    if story.run.ending.status not in (0, 1):
        return f"The session did not finish: {tests} ran on {mac}."
    if story.unused:
        return f"None of {tests} used mps, so this says nothing about {mac}."
    if suite.failed:
        return f"{suite.failed:,} of {tests} {'failed' if story.run.on_mac else 'would fail'} on {mac}."
    words = f"{tests} {'ended' if story.run.on_mac else 'would end'} as expected on {mac}"
    return f"{words}, {suite.excused:,} of them with a failure." if suite.excused else f"{words}."


def expected(story: Story, finding: Finding) -> str:
    """Why an error is no news: the manifest, a mark or the test itself expects it. The empty text if it is news."""
    if story.run.suite is None or not finding.site.known or not is_refusal(finding):
        return ""
    why = (row.why for row in story.run.suite.expected if (row.file, row.line) == finding.site.file_line)
    return next((clean(words) or "expected" for words in why), "")


def news(story: Story, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that nobody expects."""
    return [finding for finding in findings if not expected(story, finding)]
