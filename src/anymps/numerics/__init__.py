"""Error bounds of computed numbers, results that exceed them, and the check of a run."""

from __future__ import annotations

from anymps.numerics._bounds import Bound, Kind, bound_of, unit_roundoff
from anymps.numerics._check import Found, NumberCheck
from anymps.numerics._differences import Difference, Loudness, differences
from anymps.numerics._reference import in_place, widened
from anymps.numerics._session import (
    can_differ,
    check_numbers,
    line_of_program,
    start_checking,
    stop_checking,
    told,
)
