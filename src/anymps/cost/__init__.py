"""Predicts the time of a call, of many calls or of a step on a Mac, from public timings, with an interval. No torch."""

from __future__ import annotations

from anymps.cost._clocks import Busy, StepBound
from anymps.cost._coefficients import check_release, shipped
from anymps.cost._for_mac import Ratio, compile_time, conflict_time, predict_operator, speed_ratio, walk_step
from anymps.cost._predict import OperatorTime
from anymps.cost._tensors import OperatorCall, read_tensor
from anymps.cost._walk import Happening, WaitCost, WalkedStep
