"""Which torch and which macOS a recorded script can use: its calls by the rules of each. Needs no torch."""

from __future__ import annotations

from anymps.upgrade._calls import base, call_answer
from anymps.upgrade._grid import ALIKE, Cell, Grid, System, make_grid
from anymps.upgrade._subjects import FINE, Answer, Outcome, Release, Subject, named
