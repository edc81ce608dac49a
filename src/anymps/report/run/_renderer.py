"""What every form of a report is: a function of a recording and its findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from anymps.findings import Finding
from anymps.record import Recording


class Renderer(Protocol):
    """One form of a report. A new form is one more class like this; it needs neither torch nor the script."""

    @property
    def name(self) -> str:
        """The word by which a command chooses it, such as `terminal`."""
        ...

    def pieces(self, recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
        """The report as pieces of text that follow each other, so that a long one is never whole in memory."""
        ...
