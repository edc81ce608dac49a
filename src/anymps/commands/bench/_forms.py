"""The results of `anymps bench` as text, or as JSON by the schema in `docs/schema/bench-1.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from anymps._version import __version__

if TYPE_CHECKING:
    from anymps.commands.bench._prediction import Prediction
    from anymps.train.timing import Comparison

FORMAT: Final = "anymps-bench"
VERSION: Final = 1


def bench_text(found: Comparison, predictions: Sequence[Prediction], *, as_json: bool) -> str:
    """All of it; as JSON with two spaces of indentation, and times in nanoseconds."""
    if not as_json:
        return "\n\n".join(map(str, [found, *predictions]))
    content = {
        "format": FORMAT,
        "version": VERSION,
        "generator": {"name": "anymps", "version": __version__},
        **found.to_json(),
        "predictions": [prediction.to_json() for prediction in predictions],
    }
    return json.dumps(content, indent=2, allow_nan=False)
