"""The results of `anymps bench` as text, Markdown, or JSON by the schema in `docs/schema/bench-1.json`."""

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


def bench_text(found: Comparison, predictions: Sequence[Prediction], form: str | None) -> str:
    """All of it in a form: `json`, `markdown`, or text for a terminal."""
    if form == "json":
        return _json(found, predictions)
    if form == "markdown":
        return _markdown(found, predictions)
    return "\n\n".join(map(str, [found, *predictions]))


def _json(found: Comparison, predictions: Sequence[Prediction]) -> str:
    """Two spaces of indentation; times in nanoseconds."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "generator": {"name": "anymps", "version": __version__},
        **found.to_json(),
        "predictions": [prediction.to_json() for prediction in predictions],
    }
    return json.dumps(content, indent=2, allow_nan=False)


def _markdown(found: Comparison, predictions: Sequence[Prediction]) -> str:
    from anymps.commands.bench._prediction import COLUMNS as PREDICTED
    from anymps.report import bench_document, rendered
    from anymps.train.timing import COLUMNS, cells

    ratios = [str(ratio) for ratio in found.ratios]
    document = bench_document((COLUMNS, PREDICTED), cells(found.timings), ratios, found.warnings, predictions)
    return "".join(rendered(document, "markdown")).rstrip("\n")
