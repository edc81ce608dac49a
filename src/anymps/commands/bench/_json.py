"""Timings as JSON, by the schema in `docs/schema/bench-1.json`."""

from __future__ import annotations

__all__ = ["bench_json"]

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from anymps._version import __version__

if TYPE_CHECKING:
    from anymps.commands.bench._prediction import Prediction
    from anymps.train.timing import Ratio, Timing

FORMAT: Final = "anymps-bench"
VERSION: Final = 1


def bench_json(timings: Sequence[Timing], ratios: Sequence[Ratio] = (), predictions: Sequence[Prediction] = ()) -> str:
    """All of it, two spaces of indentation; times in nanoseconds."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "generator": {"name": "anymps", "version": __version__},
        "timings": [timing.to_json() for timing in timings],
        "ratios": [ratio.to_json() for ratio in ratios],
        "predictions": [prediction.to_json() for prediction in predictions],
    }
    return json.dumps(content, indent=2, allow_nan=False)
