"""What a table of rules was read from, and up to which torch release; open rows are assumed for later ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from anymps._tables import row as row_of

Release = tuple[int, int]
"""(major, minor) of torch, or of macOS."""


def release_of(text: str) -> Release:
    """(2, 14) for `2.14`, as the tables write it."""
    major, minor = text.split(".")
    return int(major), int(minor)


class Ranged(Protocol):
    """A row that holds for some releases."""

    @property
    def since(self) -> Release:
        """The first release in which it was seen."""

    @property
    def until(self) -> Release | None:
        """The last release in which it was seen, where a later one was read without it; None: no end was seen."""


Row = TypeVar("Row", bound=Ranged)


def ranged(kind: Callable[..., Row], given: Mapping[str, Any]) -> Row:
    """A row of a TOML table, whose releases are texts such as `2.14`."""
    names = [name for name in ("since", "until", "fixed") if name in given]
    return row_of(kind, {**given, **{name: release_of(given[name]) for name in names}})


@dataclass(frozen=True)
class Reading:
    """One source of a table.

    `table` is the module that holds it. Each of its rows was looked up in every release from `first` to `last`, both
    included. A row without an end was therefore seen in `last`; of later releases it is only assumed. `last` moves when
    somebody has looked, and never with the newest supported release.
    """

    table: str
    source: str
    first: Release
    last: Release

    def nearest(self, release: Release) -> Release:
        """The release, or the nearest one that was read: whose answer is assumed."""
        return max(self.first, min(release, self.last))


def holds(row: Ranged, release: Release) -> bool:
    """Whether a row holds for a release; an open row is assumed to hold for releases that were not read."""
    return row.since <= release and (row.until is None or release <= row.until)


def in_force(rows: Iterable[Row], release: Release) -> list[Row]:
    """The rows that hold for a release, in their order."""
    return [row for row in rows if holds(row, release)]
