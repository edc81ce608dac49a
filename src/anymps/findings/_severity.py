"""How much a finding matters."""

from __future__ import annotations

from enum import IntEnum

from anymps._text import severity_word


class Severity(IntEnum):
    """How much a finding matters; the most severe sorts first."""

    ERROR = 0
    """A Mac raises here, or computes something else, or dies."""
    WARNING = 1
    """A Mac runs this, slower than it need be, or not reliably."""
    INFO = 2
    """Worth knowing."""

    @property
    def label(self) -> str:
        """`error`, `warning` or `info`: in settings, options and JSON."""
        return self.name.lower()

    @property
    def word(self) -> str:
        """`error`, `warning` or `note`: in what people read."""
        return severity_word(self.label)
