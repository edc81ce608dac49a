"""What one call leaves in a recording."""

from __future__ import annotations

from collections.abc import Callable

import anymps
from anymps.record import Noted, Recording


def recorded(function: Callable[[], object]) -> Recording:
    """The recording of one call."""
    with anymps.record() as capture:
        function()
    return capture.recording


def noted(function: Callable[[], object], what: str) -> tuple[Noted, ...]:
    """What one call leaves about a habit."""
    return recorded(function).noted(what)
