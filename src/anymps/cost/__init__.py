"""Predicts the time of a call, of many calls or of a step on a Mac, from public timings, with an interval. No torch."""

from __future__ import annotations

from anymps.cost._clocks import Busy, StepBound
from anymps.cost._coefficients import check_release, shipped
from anymps.cost._compile import CompileTime, compile_time
from anymps.cost._for_mac import predict_operator, predict_step, walk_step
from anymps.cost._predict import OperatorTime, StepTime
from anymps.cost._ratio import Ratio, speed_ratio
from anymps.cost._tensors import OperatorCall, read_tensor
from anymps.cost._walk import Happening, WaitCost, WalkedStep
