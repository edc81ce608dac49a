"""What the typical step of a recording would take on a Mac. No torch."""

from __future__ import annotations

from anymps.forecast._forecast import Forecast, PlacedWait, forecast, try_forecast
from anymps.forecast._happenings import Place

__all__ = ["Forecast", "Place", "PlacedWait", "forecast", "try_forecast"]
