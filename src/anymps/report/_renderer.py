"""What every form of a report is: a function of a recording and its findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from anymps.findings import Finding
from anymps.record import Recording


class Renderer(Protocol):
    """One form of a report. A new form is one more class like this; it needs neither torch nor the script."""

    @property
    def name(self) -> str:
        """The word by which a command chooses it, such as `terminal`."""
        ...

    def render(self, recording: Recording, findings: Sequence[Finding]) -> str:
        """The whole report as text."""
        ...
