"""Makes checkpoints loadable on mps: removes float64 and other devices, runs nothing in them, loses nothing."""

from __future__ import annotations

from anymps.checkpoints._convert import convert
from anymps.checkpoints._narrow import ChangedTensor, Report
