"""Checkpoints made loadable on mps: float64 and other devices taken out, nothing in them run, nothing lost."""

from __future__ import annotations

from anymps.checkpoints._convert import convert
from anymps.checkpoints._report import Change, FileReport, Report
