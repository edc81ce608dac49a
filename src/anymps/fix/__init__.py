"""Automatic fixes: edits of a program for its findings, proved by running it before and after.

Runs nothing itself: `prove` is given what runs a script.
"""

from __future__ import annotations

from anymps.fix._budget import Budget
from anymps.fix._cause import Cause
from anymps.fix._edits import Edit, Suggestion, apply_all, edits_for
from anymps.fix._guard import check_may_write, write_all
from anymps.fix._imports import source_files
from anymps.fix._later_uses import later_uses
from anymps.fix._lines import new_statements
from anymps.fix._messages import comparable, numbers
from anymps.fix._options import device_options
from anymps.fix._patch import file_patch, how_to_apply, patch_folder
from anymps.fix._program import Program
from anymps.fix._proof import Outcome, Proof, by_lines_of, line_between, names_device, prove
from anymps.fix._same_run import Disagreement, Ran, agree
from anymps.fix._script import Script
