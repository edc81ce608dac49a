"""`anymps bench --calibrate`: what is made of the timings of a Mac."""

from __future__ import annotations

from anymps.commands.calibrate._calibrate import calibrate
