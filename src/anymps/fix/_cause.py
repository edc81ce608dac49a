"""The kinds of reasons for which an edit is not kept."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """What kind of reason keeps an edit out. Sentences about it are for people; code asks for this."""

    DIFFERS = "differs"
    """A run with it does not do what the run before it did."""
    STOPS_ON_MPS = "stops on mps"
    """With it the script is on mps for the first time, and an error stops it there."""
    NOT_SEEN = "not seen"
    """Nothing speaks against it, but a run that would show that ended too early."""
    NOT_REACHED = "not reached"
    """No run is known to have come to its line."""
    NO_EDIT = "no edit"
    """No safe edit of its line is known."""
    LINE_TAKEN = "line taken"
    """Its line is changed for another finding."""
    NO_TIME = "no time"
    """It was not tried, or not alone, within the time of all runs."""

    @property
    def is_open(self) -> bool:
        """Whether nothing speaks against the edit: `--unproved` makes it."""
        return self in (Cause.NOT_SEEN, Cause.NOT_REACHED)
