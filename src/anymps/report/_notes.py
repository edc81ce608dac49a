"""A finding as a note of a report, and its place in the program."""

from __future__ import annotations

from typing import Final

from anymps.findings import Finding, Severity
from anymps.record import Recording, Site
from anymps.report import _text as text
from anymps.report._excerpt import excerpt
from anymps.report._words import cost, fact, seen_in, times
from anymps.report.document import Note, SourceLine, Spot, State

STATES: Final[dict[Severity | None, State]] = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
    None: "clean",
}


def note(anchor: str, finding: Finding, recording: Recording) -> Note:
    """Everything that a report of one run says of a finding."""
    directory = fact(recording, "directory")
    return Note(
        anchor=anchor,
        id=finding.id,
        severity=STATES[finding.severity],
        title=text.clean(finding.title),
        spot=_spot(finding.site, directory),
        what=text.clean(finding.what),
        times=times(finding),
        related_as=finding.related_as,
        related=tuple(_spot(site, directory, function=False) for site in finding.related_sites),
        seen_in=seen_in(recording, finding),
        cost=cost(finding),
        why=text.clean(finding.why),
        fix=text.clean(finding.fix),
        source=text.clean(finding.source),
    )


def brief_note(anchor: str, finding: Finding, times: str, directory: str, *, brief: str, fix: bool) -> Note:
    """What a comparison says of a finding."""
    line = text.clean(finding.site.source.strip())
    return Note(
        anchor=anchor,
        id=finding.id,
        severity=STATES[finding.severity],
        title=text.clean(finding.title),
        spot=Spot(
            text.place(finding.site, directory), line=line, excerpt=(SourceLine(0, line, False),) if line else ()
        ),
        what=text.clean(finding.what),
        times=times,
        fix=text.clean(finding.fix) if fix else "",
        brief=brief,
    )


def _spot(site: Site, directory: str, *, function: bool = True) -> Spot:
    name = text.clean(site.function) if function else ""
    return Spot(
        text.place(site, directory),
        "" if name == "<module>" else name,
        text.clean(site.source.strip()),
        tuple(excerpt(site)),
    )
