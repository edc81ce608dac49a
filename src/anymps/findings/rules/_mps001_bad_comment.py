"""MPS001: a comment of anymps that cannot be followed."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._comments import comments, problem_of
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Recording, Site

BAD_COMMENT = Rule(
    id="MPS001",
    title="Invalid anymps comment",
    severity=Severity.INFO,
    why="A comment suppresses a finding only if it names known rules and gives a reason. This one does not.",
    fix="Write `# anymps: ignore[MPS201] reason`, with the rules' IDs and a reason.",
    source="anymps",
    example=Example(
        bad="""
            x = torch.ones(3, device=device)
            print(x.sum().item())  # anymps: ignore[MPS201]
        """,
        better={"[MPS201]": "[MPS201] once, at the end"},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """A finding for each recorded line whose comment names no known rule or gives no reason."""
    for line in recording.lines():
        for comment in comments(line.source):
            problem = problem_of(comment)
            if problem:
                yield BAD_COMMENT.finding(
                    Site(line.file, line.line, source=line.source), what=f"The comment {problem}.", count=1
                )
