"""The findings as annotations of a GitHub workflow: one line of text each, shown beside the line of code.

Form and escaping: docs.github.com, "Workflow commands for GitHub Actions"; the escapes are those of
actions/toolkit, packages/core/src/command.ts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anymps.findings import Finding, Severity, Story
from anymps.report._text import clean, duration_range, place
from anymps.report._words import news, seen_in, verdict
from anymps.report.run._sarif import below

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github_pieces(story: Story, findings: Sequence[Finding], checkout: str | None) -> Iterator[str]:
    """The verdict, then one command a finding, the most severe first; none for what tests expect.

    GitHub shows ten of a kind for a step. `checkout` is by default the directory of the run.
    """
    yield _command("notice", {"title": "anymps"}, " ".join(verdict(story, findings)))
    root = checkout or story.run.directory
    for finding in news(findings, story.run.suite):
        properties = {}
        file = below(finding.site.file, root) if finding.site.known else None
        if file is not None:
            properties = {"file": file, "line": str(finding.site.line)}
        properties["title"] = f"{finding.id} {finding.title}"
        where = "" if file is not None else f"{place(finding.site, story.run.directory)}: "
        yield _command(
            _COMMANDS[finding.severity], properties, f"{where}{_message(finding, seen_in(finding, story.processes))}"
        )


def _message(finding: Finding, seen: str) -> str:
    low, high = finding.cost_per_step_ns
    cost = f"Cost: about {duration_range(low, high)} a step on a Mac.\n" if high else ""
    cost += f"Seen in {seen}.\n" if seen else ""
    return f"{clean(finding.what)}\n{cost}Why: {clean(finding.why)}\nFix: {clean(finding.fix)}"


def _command(name: str, properties: dict[str, str], message: str) -> str:
    words = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {words}::{_data(message)}\n"


def _data(text: str) -> str:
    """One line, in which nothing turns the direction of what follows it or is a control character."""
    text = "\n".join(map(clean, text.split("\n")))
    return text.replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
