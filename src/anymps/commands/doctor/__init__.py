"""`anymps doctor`: what is there on this machine, what that means for mps, and what to do next."""

from __future__ import annotations

from anymps.commands.doctor._command import doctor
