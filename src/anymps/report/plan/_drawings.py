"""The drawings of a plan's page, as numbers for its template: horizontal places in per cent, heights in pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from anymps._text import duration, duration_range, duration_short
from anymps.report import _text as text
from anymps.report._lanes import round_
from anymps.report.plan import _words as words
from anymps.report.plan._chart import LogScale
from anymps.report.plan._words import rate

if TYPE_CHECKING:
    from anymps.plan import Plan

_WIDEST: Final = 1.9
"""Times the working set, at the right edge of the Macs' bars: a little beyond torch's limit."""

_FIRST_ROW, _ROW = 44, 40

_TICK: Final = 14  # per cent between two names of an axis: on a phone they need as much


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


def times_drawing(plan: Plan) -> dict[str, Any] | None:
    """A step on each Mac with its interval, on one logarithmic scale; None where no time is predicted."""
    timed = [(it.mac.name, it.time) for it in plan.times if it.time is not None]
    rows = [
        (
            f"{name}: {duration(1e9 * time.seconds)} ({duration_range(1e9 * time.low, 1e9 * time.high)})",
            time.low,
            time.seconds,
            time.high,
        )
        for name, time in timed
    ]
    return _intervals(rows, "How long a step takes", lambda seconds: duration_short(1e9 * seconds))


def batch_drawings(plan: Plan) -> list[dict[str, Any]]:
    """Samples a second by batch, each with its interval: a drawing for each Mac, by its name."""
    drawings = []
    for batches in plan.batches:
        rows = [
            (f"batch {it.batch:,}: {rate(it.samples)} samples a second", it.low, it.samples, it.high)
            for it in batches.rows
        ]
        drawing = _intervals(rows, f"Samples a second on {batches.mac.name}", lambda number: f"{number:,g}/s")
        if drawing is not None:
            drawings.append({"name": batches.mac.name, "drawing": drawing})
    return drawings


def _intervals(
    values: Sequence[tuple[str, float, float, float]], what: str, said_as: Callable[[float], str]
) -> dict[str, Any] | None:
    """A row for each name with its low, middle and high value, and the names of the axis."""
    if not values:
        return None
    scale = LogScale.of([(low, high) for _, low, _, high in values])
    rows = []
    for place, (said, *three) in enumerate(values):
        low, at, high = (round_(100 * scale.at(value)) for value in three)
        rows.append({"top": _FIRST_ROW + _ROW * place, "name": said, "low": low, "width": round_(high - low), "at": at})
    kept: list[tuple[float, str]] = []
    for at, name in ((round_(100 * scale.at(it)), said_as(it)) for it in scale.ticks):
        if 4 <= at <= 96 and (not kept or at - kept[-1][0] >= _TICK):
            kept.append((at, name))
    return {
        "label": f"{what}. {'; '.join(str(row['name']) for row in rows)}. The table holds the numbers.",
        "height": _FIRST_ROW + _ROW * len(rows),
        "rows": rows,
        "ticks": [{"at": at, "name": name} for at, name in kept],
    }
