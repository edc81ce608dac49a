"""A plan as one HTML page, by the rules of the report's page: one file, no network, readable anywhere and by ear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anymps._version import __version__
from anymps.report import _text as text
from anymps.report._drawings import memory_drawing
from anymps.report._memory_rows import beyond
from anymps.report._page import assets, templates
from anymps.report.plan import _batch_words as batch_words
from anymps.report.plan import _choice_words as choice_words
from anymps.report.plan import _words as words
from anymps.report.plan._drawings import batch_drawings, choice_drawing, macs_drawing, times_drawing

if TYPE_CHECKING:
    from anymps.plan import Plan
    from anymps.record import Moment

_STATES = {"fits": "clean", "tight": "warning", "pages": "warning", "fails": "error"}

_SECTIONS = {
    "choice": "Which Mac",
    "macs": "Macs",
    "times": "Times",
    "batches": "Batch",
    "memory": "Memory",
    "changes": "What if",
    "fixes": "Change first",
    "assumptions": "Values read",
    "limits": "Limits",
}


def plan_page(plan: Plan) -> str:
    """The page. What comes from the script is escaped, and without control characters."""
    return templates().get_template("plan.html.j2").render(_page(plan))


def _page(plan: Plan) -> dict[str, Any]:
    peak = plan.base.story.peak
    assert peak is not None
    script = text.clean(plan.script)
    names = [mac.name for mac in plan.asked]
    page: dict[str, Any] = {
        "title": f"anymps plan: {script}" + (f" on {', '.join(names)}" if names else ""),
        "kind": "plan",
        "made_from": "from a script run on shapes",
        "version": __version__,
        "eyebrow": [
            script,
            *names,
            f"torch {text.clean(plan.torch)}",
            "plan",
        ],
        "state": _STATES[words.worst(plan)],
        "verdict": (words.headline(plan), words.summary(plan, peak)),
        "messages": words.messages(plan),
        "dropped": words.dropped(plan),
        "figures": _figures(plan, peak),
        "choice_title": choice_words.TITLE,
        "choice_drawing": choice_drawing(plan),
        "choice": choice_words.choice_rows(plan),
        "macs_drawing": macs_drawing(plan),
        "macs": words.mac_rows(plan),
        "times_drawing": times_drawing(plan),
        "times": words.time_rows(plan),
        "batches_title": batch_words.TITLE,
        "batch_drawings": batch_drawings(plan),
        "batches": batch_words.batch_rows(plan),
        "without_batches": batch_words.without_batches(plan),
        "memory_drawing": memory_drawing(plan.base.story, first_step=1),
        "categories": _categories(peak),
        "modules": words.module_rows(peak),
        "lines": words.line_rows(peak),
        "growth": words.growth(plan),
        "changes": words.change_rows(plan),
        "fixes": words.fixes(plan),
        "assumptions": words.assumption_rows(plan),
        "limits": words.limits(plan),
    }
    there = {
        **page,
        "memory": True,
        "times": plan.times,
        "batches": plan.batches or page["without_batches"],
        "changes": page["changes"].rows,
        "assumptions": page["assumptions"].rows,
    }
    page["sections"] = [(anchor, name) for anchor, name in _SECTIONS.items() if there[anchor]]
    return {**page, **assets()}


def _figures(plan: Plan, peak: Moment) -> list[dict[str, str]]:
    figures = [
        ("peak in tensors", text.size(peak.allocated)),
        ("peak of the heaps", text.size(plan.base.story.peak_reserved)),
        ("batch", text.count(plan.base.batch or 0)),
        ("sequence", text.count(plan.base.sequence or 0)),
        ("steps measured", str(plan.base.steps)),
    ]
    return [{"name": name, "value": value} for name, value in figures if value]


def _categories(peak: Moment) -> words.Rows:
    whole = max(1, peak.allocated)
    rows = [(name, text.size(size), text.percent(size, whole)) for name, size in words.categories(peak)]
    return words.Rows(("used for", "size", "share"), (1, 2), (*rows, *beyond(peak)))
