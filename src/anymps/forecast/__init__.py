"""What the typical step of a recording would take on a Mac. No torch."""

from __future__ import annotations

from anymps.forecast._forecast import Forecast, PlacedWait, bound_words, forecast, try_forecast, why_no_forecast
from anymps.forecast._happenings import Place, StepWork, step_work

__all__ = [
    "Forecast",
    "Place",
    "PlacedWait",
    "StepWork",
    "bound_words",
    "forecast",
    "step_work",
    "try_forecast",
    "why_no_forecast",
]
