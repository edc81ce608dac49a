"""Calibrates predictions to one machine: factors from its timings, kept in a file, for the shipped coefficients.

`cost._for_mac` asks `coefficients_for`, and nothing else of `cost` knows of it.
"""

from __future__ import annotations

from anymps.cost.calibration._calibration import Calibration, calibrated
from anymps.cost.calibration._file import calibration_path, coefficients_for, date_in_words, keep_calibration
from anymps.cost.calibration._fit import Mode, Timed, expected_seconds, fit, refusal
