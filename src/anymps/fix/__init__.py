"""Fixes that a machine can make: edits of a program by its findings, proved by running it before and after.

Needs libcst, which the extra `anymps[fix]` brings. Runs nothing itself: `prove` is given what runs a script.
"""

from __future__ import annotations

from anymps.fix._edits import Edit, Suggestion, edits_for
from anymps.fix._guard import check_may_write, write_all
from anymps.fix._program import Program
from anymps.fix._proof import Outcome, Proof, Ran, prove
from anymps.fix._script import Script

__all__ = [
    "Edit",
    "Outcome",
    "Program",
    "Proof",
    "Ran",
    "Script",
    "Suggestion",
    "check_may_write",
    "edits_for",
    "prove",
    "write_all",
]
