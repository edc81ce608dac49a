"""The drawings of a plan's page, as numbers for its template: horizontal places in per cent, heights in pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from anymps.report import _text as text
from anymps.report._drawings import round_
from anymps.report.plan import _words as words

if TYPE_CHECKING:
    from anymps.plan import Plan

_WIDEST: Final = 1.9
"""Times the working set, at the right edge of the Macs' bars: a little beyond torch's limit."""

_FIRST_ROW, _ROW = 44, 40


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
