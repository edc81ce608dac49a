"""Shows recordings, plans and comparisons in a notebook: each as its page, in a frame."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from anymps.findings import Finding, Story, find, read_settings, roots, select
from anymps.plan import Plan
from anymps.record import Recording
from anymps.report import Diff, diff_document, plan_document, render_summary, rendered, report_pieces

# Scripts of the page itself run, and reach nothing of the notebook.
_STYLE = "width: 100%; height: 640px; border: 1px solid #8884"
_FRAME = '<iframe srcdoc="{}" sandbox="allow-scripts" style="' + _STYLE + '"></iframe>'


def html(thing: Recording | Plan | Diff) -> str:
    """The page of a recording, a plan or a comparison as a frame for a notebook."""
    return _FRAME.format(escape(_whole(thing, "html")))


def markdown(thing: Recording | Plan | Diff) -> str:
    """The same as Markdown, for viewers that show no frames."""
    return _whole(thing, "markdown")


def _whole(thing: Recording | Plan | Diff, form: str) -> str:
    if isinstance(thing, Recording):
        return "".join(report_pieces(form, Story.of(thing), _findings(thing)))
    return "".join(rendered(plan_document(thing) if isinstance(thing, Plan) else diff_document(thing), form))


def text(thing: Recording | Plan) -> str:
    """The same for a terminal: of a recording the short report."""
    if isinstance(thing, Plan):
        shown = "".join(rendered(plan_document(thing, short=True), "terminal"))
    else:
        shown = render_summary(Story.of(thing), _findings(thing))
    return shown.rstrip("\n")


def register(formatter: Any) -> None:
    """Show recordings, plans and comparisons so, wherever this IPython `DisplayFormatter` shows something."""
    for kind in (Recording, Plan, Diff):
        formatter.formatters["text/html"].for_type(kind, html)
        formatter.formatters["text/markdown"].for_type(kind, markdown)
    for kind in (Recording, Plan):
        formatter.formatters["text/plain"].for_type(kind, lambda thing, printer, _: printer.text(text(thing)))


def _findings(recording: Recording) -> tuple[Finding, ...]:
    settings = read_settings(Path.cwd())
    return select(find(recording), settings, roots(recording, settings)).findings
