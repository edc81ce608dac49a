"""Advice for values that torch, a trainer or a metric reads, so that nothing on the user's line does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from anymps._tables import read_table
from anymps.findings._costs import ITEM
from anymps.findings._loop import AtLine
from anymps.findings.advice._user_line import UserLine
from anymps.record import Phase
from anymps.source import LineEdit, without_comment


class Advice(NamedTuple):
    """What happened, and a fix and a source of its own; empty where the rule's own is best.

    `elsewhere`: the fix is no change of the line itself but a setting, which the user can make wherever the line lies.
    `edit` is what a person may make of the line, as it keeps a tensor in place of a number, or does less often what the
    line does; `written` is the fix that shows its code, as `{new}`.
    """

    what: str
    fix: str = ""
    source: str = ""
    elsewhere: bool = False
    edit: LineEdit | None = None
    written: str = ""


@dataclass(frozen=True)
class _Read:
    """A row of `reads.toml`; a pattern that is empty fits anything."""

    what: str
    fix: str
    source: str = ""
    elsewhere: bool = False
    via: str = ""
    file: str = ""
    line: str = ""
    phase: str = ""

    def fits(self, line: AtLine, vias: str, code: str) -> bool:
        """Whether a read at a line is this one."""
        pairs = ((self.via, vias), (self.file, line.site.file), (self.line, code))
        here = not self.phase or line.phases == (Phase[self.phase],)
        return here and all(re.search(pattern, text, re.MULTILINE) for pattern, text in pairs)


_READS: Final = [_Read(**row) for row in read_table(__file__, "reads.toml")["read"]]


def in_library(line: AtLine) -> Advice | None:
    """Reads that a function of torch makes, a trainer or a metric."""
    vias = " ".join(wait.site.via for wait in line.occurrences)
    code = f"{without_comment(line.site.source).strip()}\n{UserLine.at(line.site).code}"
    read = next((row for row in _READS if row.fits(line, vias, code)), None)
    source = f"{read.source}; {ITEM.source}" if read is not None and read.source else ""
    return None if read is None else Advice(read.what, read.fix, source, read.elsewhere)
