"""`anymps bench --calibrate`: the calls that it times, how they are timed, and what is made of it."""

from __future__ import annotations

from anymps.commands.calibrate._calibrate import calibrate

__all__ = ["calibrate"]
