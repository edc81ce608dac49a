"""What a call, a sum of many or a step would take on a Mac: from public timings, with an interval. No torch."""

from __future__ import annotations

from anymps.cost._clocks import Busy, StepBound
from anymps.cost._predict import OperatorTime, StepTime, predict_operator, predict_step
from anymps.cost._tensors import OperatorCall
from anymps.cost._walk import Happening, HappeningKind, WaitCost, WalkedStep, walk_step

__all__ = [
    "Busy",
    "Happening",
    "HappeningKind",
    "OperatorCall",
    "OperatorTime",
    "StepBound",
    "StepTime",
    "WaitCost",
    "WalkedStep",
    "predict_operator",
    "predict_step",
    "walk_step",
]
