"""The user's source around a line, as far as the file still says what the recording says."""

from __future__ import annotations

import tokenize
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from anymps.record import Site
from anymps.report._text import clean, shorten

_AROUND = 3
_LONGEST = 400  # characters of a line that are shown
_LARGEST = 4 << 20  # bytes of a file that is read


@dataclass(frozen=True)
class SourceLine:
    """One line of an excerpt; `marked` is the one it is about."""

    number: int
    text: str
    marked: bool


def excerpt(site: Site, directory: str, *, read: bool = True) -> tuple[list[SourceLine], str]:
    """The lines around a site, and a remark on why there are no more; both empty for an unknown site.

    This is the recorded line alone unless the file is to be `read`, is there, and still has that line.
    """
    if not site.known:
        return [], ""
    recorded = site.source.strip()
    alone = [SourceLine(site.line, _shown(recorded), True)] if recorded else []
    if not read:
        return alone, ""
    lines = _lines(site.file, directory)
    if lines is None:
        return alone, "The file cannot be read here." if alone else ""
    # A recording may come from elsewhere: a file here is quoted only if it proves to be the one that ran.
    if not recorded or not 0 < site.line <= len(lines) or lines[site.line - 1].strip() != recorded:
        return alone, "The file has changed since." if alone else ""
    first = max(site.line - 1 - _AROUND, 0)
    part = lines[first : site.line + _AROUND]
    margin = min((len(line) - len(line.lstrip()) for line in part if line.strip()), default=0)
    return [
        SourceLine(number, _shown(line[margin:]), number == site.line) for number, line in enumerate(part, first + 1)
    ], ""


@lru_cache(maxsize=64)
def _lines(file: str, directory: str) -> list[str] | None:
    """The lines of a source file with its tabs expanded, None if it cannot be read."""
    try:
        path = Path(directory, file)
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        with tokenize.open(path) as stream:
            return [line.rstrip("\n").expandtabs(4) for line in stream]
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None


def _shown(line: str) -> str:
    return shorten(clean(line.rstrip()), _LONGEST)
