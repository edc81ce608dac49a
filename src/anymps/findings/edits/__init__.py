"""Edits of rules: what lets a program take mps beside CUDA, and how sure an edit is at the lines of a recording."""

from __future__ import annotations

from anymps.findings.edits._device_place import TYPE_WITH_MPS
from anymps.findings.edits._placed import CodeChange, Placed, Safety, change_at, place_at, recorded_statements
from anymps.findings.edits._portable import (
    asks_for_mps,
    chooses_device,
    chosen_by_name,
    is_seeded,
    portable,
    tests_device,
)
