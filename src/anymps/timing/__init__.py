"""Times functions and training steps, and tells what makes the numbers unreliable.

A GPU computes while Python continues, so a clock around a call without a synchronise measures how fast work is queued.
Everything here synchronises before and after, and keeps both times.
"""

from __future__ import annotations

from anymps.timing._measure import Contender, Stopwatch, compare
from anymps.timing._steps import StepTimer
from anymps.timing._timing import FEW_RUNS, Comparison, Run, Timing
