"""What the typical step of a recording would take on a Mac. No torch."""

from __future__ import annotations

from anymps.forecast._fewer_kernels import NORMS, with_fused_optimizer, with_sums, without_fills
from anymps.forecast._forecast import (
    BUSY,
    Forecast,
    bound_words,
    forecast,
    loop_forecasts,
    seconds_saved,
    try_forecast,
    why_no_forecast,
)
from anymps.forecast._happenings import StepWork, WaitingLine, call_of, step_work
from anymps.forecast._scatters import SCATTERS, scatters_of
from anymps.forecast._timeline import BusySpan, PredictedTimeline, timeline_of
