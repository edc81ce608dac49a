"""An edit at recorded lines: how sure it is, and the change that it makes of what the recording holds there."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from anymps.record import Site
from anymps.source import Edit, Insert, Place, build, in_one_line, place_in_lines, statements_in


class Safety(Enum):
    """What an edit needs before it is made."""

    SAFE = "safe"
    """Nothing: the new code means the same on cpu, cuda and mps."""
    PROVED = "proved"
    """Two runs that agree, as `anymps fix` makes them."""
    ADVICE = "advice"
    """A person: what it changes is seen in the program's results. No machine makes it."""


@dataclass(frozen=True)
class CodeChange:
    """An edit at one place: in a file, from line and column (both from 1), `old` becomes `new`.

    It is built from what the recording holds of the file. Where that is the line alone, `column` is 0.
    """

    file: str
    line: int
    column: int
    old: str
    new: str
    inserts: tuple[Insert, ...] = ()

    @property
    def code(self) -> str:
        """The new code in one line, as a sentence shows it; empty where Python needs several."""
        return self.new if "\n" not in self.new else in_one_line(self.new)


@dataclass(frozen=True)
class Placed:
    """An edit, and the lines at which it may be made, the best first."""

    edit: Edit
    sites: tuple[Site, ...]
    safety: Safety


def place_at(site: Site) -> Place | None:
    """The statement at a recorded line, by the lines that the recording holds of its file."""
    return place_in_lines(site.lines, site.line, site.source, site.function) if site.known else None


def recorded_statements(site: Site) -> tuple[tuple[int, ast.AST], ...]:
    """The statements in the lines that a recording holds of a file, one line each, with their numbers."""
    return statements_in(site.lines)


def change_at(placed: Placed) -> CodeChange | None:
    """The change that an edit makes, at the first of its lines for which the recording holds enough to build it."""
    for site in placed.sites:
        place = place_at(site)
        built = None if place is None else build(placed.edit, place)
        if place is None or built is None:
            continue
        above = place.code.text[: built.start]
        row = place.line + above.count("\n")
        column = built.start - (above.rfind("\n") + 1) + 1 if "\n" in above else place.column + built.start
        new = built.new if "\n" in place.code.text else built.new.replace("\n", "\n" + " " * (column - 1))
        return CodeChange(site.file, row, column if place.column else 0, built.old, new, built.inserts)
    return None
