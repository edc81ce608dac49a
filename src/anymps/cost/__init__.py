"""What a call, a sum of many or a step would take on a Mac: from public timings, with an interval. No torch."""

from __future__ import annotations

from anymps.cost._calibration import Calibration, calibrated
from anymps.cost._calibration_file import calibration_path, date_in_words, keep_calibration
from anymps.cost._calibration_fit import Mode, Timed, expected_seconds, fit, refusal
from anymps.cost._clocks import Busy, StepBound
from anymps.cost._coefficients import Coefficients, check_release, shipped
from anymps.cost._predict import OperatorTime, StepTime, predict_operator, predict_step
from anymps.cost._ratio import Ratio, speed_ratio
from anymps.cost._tensors import OperatorCall, read_tensor
from anymps.cost._walk import Happening, HappeningKind, WaitCost, WalkedStep, walk_step

__all__ = [
    "Busy",
    "Calibration",
    "Coefficients",
    "Happening",
    "HappeningKind",
    "Mode",
    "OperatorCall",
    "OperatorTime",
    "Ratio",
    "StepBound",
    "StepTime",
    "Timed",
    "WaitCost",
    "WalkedStep",
    "calibrated",
    "calibration_path",
    "check_release",
    "date_in_words",
    "expected_seconds",
    "fit",
    "keep_calibration",
    "predict_operator",
    "predict_step",
    "read_tensor",
    "refusal",
    "shipped",
    "speed_ratio",
    "walk_step",
]
