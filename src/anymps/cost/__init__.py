"""What a call, or a step of many, would take on a Mac: predicted from public timings, with an interval. No torch."""

from __future__ import annotations

from anymps.cost._predict import OperatorTime, StepTime, predict_operator, predict_step
from anymps.cost._tensors import OperatorCall

__all__ = [
    "OperatorCall",
    "OperatorTime",
    "StepTime",
    "predict_operator",
    "predict_step",
]
