"""The user's source around a line, as the recording holds it: that may come from elsewhere, so no file is opened."""

from __future__ import annotations

from anymps.record import Site
from anymps.report._text import clean, shorten
from anymps.report.document import SourceLine

_LONGEST = 400  # characters of a line that are shown


def excerpt(site: Site) -> list[SourceLine]:
    """The lines around a site; the recorded line alone where no others are known, nothing for an unknown site."""
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
    return shorten(clean(line.rstrip()), _LONGEST)
