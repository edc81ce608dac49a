"""The drawings of a plan's page, as numbers for its template: horizontal places in per cent, heights in pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from anymps.record import Sample
from anymps.report import _plan_words as words
from anymps.report import _text as text
from anymps.report._drawings import round_, stacked

if TYPE_CHECKING:
    from anymps.plan import Plan
    from anymps.record import MemoryStory

_POINTS: Final = 400
_STEPS: Final = 5  # labels on the axis at most: what a narrow screen has room for
_WIDEST: Final = 1.9
"""Times the working set, at the right edge of the Macs' bars: a little beyond torch's limit."""

_FIRST_ROW, _ROW = 44, 40


def plan_memory_drawing(story: MemoryStory) -> dict[str, Any] | None:
    """Memory over the measured steps, stacked by what it is used for, with the peak; None if there is too little of it.

    From left to right are allocations in their order: a plan knows no times.
    """
    samples = story.samples(_POINTS)
    if len(samples) < 2:
        return None
    sums = [sum(sample.by_category) for sample in samples]
    peak = max(sums)
    across = [place / (len(samples) - 1) for place in range(len(samples))]
    highest = max(peak, *(sample.reserved for sample in samples)) or 1
    bands, driver = stacked(samples, across, highest)
    at = sums.index(peak)
    name = f"peak {text.size(peak)}, step {samples[at].step + 1}"
    held = ", ".join(f"{band['name']} {band['most']}" for band in bands)
    return {
        "label": f"Memory over the measured steps. At most {text.size(peak)}, in step {samples[at].step + 1}. "
        f"At most by use: {held}. The tables below hold the same for the peak.",
        "highest": text.size(highest),
        "ticks": _steps(samples, across),
        "bands": bands,
        "driver": driver,
        "peak": {
            "at": round_(100 * across[at]),
            "top": round_(20 + 140 - 138 * peak / highest),
            "name": name,
            "anchor": "end" if across[at] > 0.5 else "start",
            "shift": -8 if across[at] > 0.5 else 8,
        },
    }


def _steps(samples: Sequence[Sample], across: Sequence[float]) -> list[dict[str, Any]]:
    first: dict[int, float] = {}
    for sample, at in zip(samples, across, strict=True):
        first.setdefault(sample.step, at)
    every = -(-len(first) // _STEPS)
    starts = list(first.items())[::every]
    return [{"at": round_(100 * at), "label": f"step {step + 1}"} for step, at in starts]


def macs_drawing(plan: Plan) -> dict[str, Any]:
    """A bar for each Mac, on a scale of its own: working set and limits stand at the same places in all."""
    rows: list[dict[str, Any]] = []
    for place, row in enumerate(plan.rows):
        outcome = row.outcome
        share = words.needed(plan, outcome) / outcome.mac.recommended_max_memory
        needs = f"{text.size(words.needed(plan, outcome))}, {share:.2f} times the working set"
        rows.append(
            {
                "top": _FIRST_ROW + _ROW * place,
                "name": f"{outcome.mac.name}: {words.verdict(outcome)}",
                "verdict": outcome.verdict.value,
                "width": round_(min(100.0, 100 * share / _WIDEST)),
                "cut": share > _WIDEST,
                "title": f"{outcome.mac.name}: needs {needs}",
            }
        )
    said = "; ".join(row["name"] for row in rows)
    return {
        "label": f"The peak of the heaps against each Mac's working set. {said}. The table holds the numbers.",
        "height": _FIRST_ROW + _ROW * len(rows),
        "rows": rows,
        "lines": [
            {"at": round_(100 / _WIDEST), "kind": "working", "name": "working set"},
            {"at": round_(100 * words.LOW / _WIDEST), "kind": "low", "name": f"{words.LOW:g}×"},
            {"at": round_(100 * words.HIGH / _WIDEST), "kind": "limit", "name": f"{words.HIGH:g}×"},
        ],
        "low": f"{words.LOW:g}",
        "high": f"{words.HIGH:g}",
    }
