"""`anymps bench --calibrate`: times a Mac and fits predictions to it."""

from __future__ import annotations

from anymps.commands.calibrate._calibrate import calibrate
