"""A finding as a note of a report, and its place in the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from anymps.findings import Finding, Judgement, Outcome, Severity
from anymps.record import Site
from anymps.report import _text as text
from anymps.report._words import times
from anymps.report.document import Note, SourceLine, Spot, State

_LONGEST: Final = 400  # characters of a line of source that are shown
STATES: Final[dict[Severity | None, State]] = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
    None: "clean",
}


def state_of(findings: Sequence[Finding], judged: Judgement) -> State:
    """How a report's first line is marked: as the worst finding, or as a note where there was nothing to judge."""
    none = None if judged.outcome is Outcome.RUNS else Severity.INFO
    return STATES[min((finding.severity for finding in findings), default=none)]


def note(anchor: str, finding: Finding, directory: str, *, cost: str = "", seen_in: str = "") -> Note:
    """Everything that a report of one run says of a finding."""
    ways = (f"({number}) {way}." for number, way in enumerate(finding.ways, 1))
    facts = (
        ("what", finding.what),
        ("fix", finding.fix),
        ("ways", " ".join(ways).replace("{cost}", cost or "a time that is not known")),
        ("cost", cost),
        ("why", finding.why),
        ("times", times(finding)),
        ("seen in", seen_in),
        ("source", finding.source),
    )
    return Note(
        anchor=anchor,
        id=finding.id,
        severity=STATES[finding.severity],
        title=text.clean(finding.title),
        spot=_spot(finding.site, directory),
        facts=tuple((name, text.clean(said)) for name, said in facts if said),
        related_as=finding.related_as,
        related=tuple(_spot(site, directory, function=False) for site in finding.related_sites),
    )


def brief_note(anchor: str, finding: Finding, often: str, directory: str, *, brief: str, fix: bool) -> Note:
    """What a comparison says of a finding."""
    whole = note(anchor, finding, directory)
    line = whole.spot.line
    spot = replace(whole.spot, function="", excerpt=(SourceLine(0, line, False),) if line else ())
    facts = {**dict(whole.facts), "times": often}
    kept = tuple((name, facts[name]) for name in ("what", "fix", "times") if name in facts and (fix or name != "fix"))
    return replace(whole, spot=spot, facts=kept, related=(), brief=brief)


def _spot(site: Site, directory: str, *, function: bool = True) -> Spot:
    name = text.clean(site.function) if function else ""
    return Spot(
        text.place(site, directory),
        "" if name == "<module>" else name,
        text.clean(site.source.strip()),
        tuple(_excerpt(site)),
    )


def _excerpt(site: Site) -> list[SourceLine]:
    """The lines around a site, as the recording holds them; without others the line alone, nothing for an unknown site.

    The recording may come from elsewhere, so no file is opened.
    """
    recorded = site.source.strip()
    if not site.known or not recorded:
        return []
    lines = site.around.split("\n")
    place = site.line - site.first
    if not 0 <= place < len(lines) or lines[place].strip() != recorded:
        return [SourceLine(site.line, _shown(recorded), True)]
    lines = [line.expandtabs(4) for line in lines]
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [
        SourceLine(number, _shown(line[margin:]), number == site.line) for number, line in enumerate(lines, site.first)
    ]


def _shown(line: str) -> str:
    return text.shorten(text.clean(line.rstrip()), _LONGEST)
