"""Time functions and training steps, and report what makes the numbers unreliable::

    from anymps.train import timing

    print(timing.measure(step, device="mps"))
    print(timing.compare({"unfused": step, "fused": fused_step}, device="mps"))

A GPU computes while Python continues, so a clock around a call without a synchronise measures how fast work is queued.
Everything here synchronises before and after, and keeps both times.
"""

from __future__ import annotations

from anymps.train.timing._compare import Certainty, Comparison, Ratio
from anymps.train.timing._measure import Contender, Stopwatch, compare, measure
from anymps.train.timing._steps import StepTimer
from anymps.train.timing._timing import COLUMNS, FEW_RUNS, Run, Timing, cells, table, warnings_of

__all__ = [
    "COLUMNS",
    "FEW_RUNS",
    "Certainty",
    "Comparison",
    "Contender",
    "Ratio",
    "Run",
    "StepTimer",
    "Stopwatch",
    "Timing",
    "cells",
    "compare",
    "measure",
    "table",
    "warnings_of",
]
