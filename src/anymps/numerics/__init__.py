"""How far a computed number may lie from the exact one, and where two results are further apart than that."""

from __future__ import annotations

from anymps.numerics._bounds import Bound, Kind, bound_of, unit_roundoff
from anymps.numerics._differences import Difference, Loudness, differences
from anymps.numerics._widening import widened

__all__ = [
    "Bound",
    "Difference",
    "Kind",
    "Loudness",
    "bound_of",
    "differences",
    "unit_roundoff",
    "widened",
]
