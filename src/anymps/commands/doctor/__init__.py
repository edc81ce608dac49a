"""`anymps doctor`: explains why mps is or is not available on this machine, and what to do next."""

from __future__ import annotations

from anymps.commands.doctor._command import doctor
