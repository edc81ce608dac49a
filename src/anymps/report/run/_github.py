"""The findings as annotations of a GitHub workflow: one line of text each, shown beside the line of code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anymps._text import workflow_command
from anymps.findings import Finding, Severity, Story
from anymps.report._text import clean, duration_range, place
from anymps.report._words import news, seen_in, verdict
from anymps.report.run._sarif import below

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github_pieces(story: Story, findings: Sequence[Finding], checkout: str | None) -> Iterator[str]:
    """The verdict, then one command a finding, the most severe first; none for what tests expect.

    GitHub shows ten of a kind for a step. `checkout` is by default the directory of the run.
    """
    yield workflow_command("notice", {"title": "anymps"}, " ".join(verdict(story, findings))) + "\n"
    root = checkout or story.run.directory
    for finding in news(findings, story.run.suite):
        properties = {}
        file = below(finding.site.file, root) if finding.site.known else None
        if file is not None:
            properties = {"file": file, "line": str(finding.site.line)}
        properties["title"] = f"{finding.id} {finding.title}"
        where = "" if file is not None else f"{place(finding.site, story.run.directory)}: "
        message = f"{where}{_message(finding, seen_in(finding, story.processes))}"
        yield workflow_command(_COMMANDS[finding.severity], properties, message) + "\n"


def _message(finding: Finding, seen: str) -> str:
    low, high = finding.cost_per_step_ns
    cost = f"Cost: about {duration_range(low, high)} a step on a Mac.\n" if high else ""
    cost += f"Seen in {seen}.\n" if seen else ""
    return f"{clean(finding.what)}\n{cost}Why: {clean(finding.why)}\nFix: {clean(finding.fix)}"
