"""Edits: what a rule changes in code, as data, and the code that makes the change in the user's syntax tree."""

from __future__ import annotations

from anymps.findings.edits._build import Built, build, change_at, fits
from anymps.findings.edits._calls import argument, unpacks
from anymps.findings.edits._code import Code, Splice, last_name, line_starts, without_comment
from anymps.findings.edits._device_type import TYPE_WITH_MPS
from anymps.findings.edits._model import (
    CallEdit,
    Change,
    Edit,
    Guard,
    Insert,
    LineEdit,
    Placed,
    Rewritten,
    Safety,
)
from anymps.findings.edits._place import Place, place_at, place_in_file, recorded_statements
from anymps.findings.edits._portable import (
    asks_for_mps,
    chooses_device,
    chosen_by_name,
    is_seeded,
    portable,
    portable_before_29,
    tests_device,
)
