"""Automatic fixes: edits of a program for its findings, checked by runs of the changed program."""

from __future__ import annotations

from anymps.fix._check import Checked, How, check
from anymps.fix._comparison import Ran, comparable, numbers
from anymps.fix._edits import Edit, Suggestion, apply_all, edits_for
from anymps.fix._guard import check_may_write, file_patch, how_to_apply, may_write, patch_folder, write_all
from anymps.fix._program import Program
from anymps.fix._runs import Runs
from anymps.fix._script import Script
