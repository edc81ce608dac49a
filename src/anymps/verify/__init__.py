"""Asks a Mac a list of calls, and shows where the virtual device answers differently."""

from __future__ import annotations

from anymps.verify._answers import Answers, read_answers, write_answers
from anymps.verify._compare import Comparison, Count, Difference, compare
from anymps.verify._kinds import KINDS, Kind
from anymps.verify._run import ask
from anymps.verify._supervised import Ended, listen
from anymps.verify._words import asked_lines, comparison_lines, device_words, mac_of
