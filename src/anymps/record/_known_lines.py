"""The name of a line of code in a baseline, which is the same in another run and on another machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anymps._paths import project_path
from anymps.record._facts import Site


class Known(NamedTuple):
    """What happened at a line: `what` is a rule's id, the name of a wait, or an operator that ran on the CPU.

    `file` is as the project or its package names it, and `source` is the line without regard to blanks. The line's
    number is left out: code above it may change.
    """

    what: str
    file: str
    function: str
    source: str


def known_as(what: str, site: Site, roots: Sequence[str]) -> Known:
    """What happened at a line; `roots` are directories that files are named from, the first that fits counts."""
    return Known(what, project_path(site.file, roots), site.function, " ".join(site.source.split()))


def known_from(what: str, file: str, function: str, source: str) -> Known:
    """What a baseline's file says, which an older version may have written with the folders of an environment."""
    return Known(what, project_path(file, ()), function, source)
