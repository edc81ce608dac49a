"""What a notebook shows of a recording, a plan and a comparison: their pages, each in a frame of its own."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from anymps._own_imports import own_imports
from anymps.findings import Finding, find, read_settings, roots, select
from anymps.notebook._own import as_it_was
from anymps.plan import Plan
from anymps.record import Recording

with own_imports():  # a notebook may have a `rich.py` beside it
    from anymps.report import Diff, diff_document, plan_page, render_plan, render_summary, rendered, renderer

# Scripts of the page itself run, and reach nothing of the notebook.
_STYLE = "width: 100%; height: 640px; border: 1px solid #8884"
_FRAME = '<iframe srcdoc="{}" sandbox="allow-scripts" style="' + _STYLE + '"></iframe>'


def html(thing: Recording | Plan | Diff) -> str:
    """The page of a recording, a plan or a comparison as a frame for a notebook."""
    with as_it_was():
        if isinstance(thing, Recording):
            page = "".join(renderer("html").pieces(thing, _findings(thing)))
        elif isinstance(thing, Plan):
            page = plan_page(thing)
        else:
            page = "".join(rendered(diff_document(thing), "html"))
    return _FRAME.format(escape(page))


def text(thing: Recording | Plan) -> str:
    """The same for a terminal: of a recording the short report."""
    with as_it_was():
        shown = render_plan(thing) if isinstance(thing, Plan) else render_summary(thing, _findings(thing))
    return shown.rstrip("\n")


def register(formatter: Any) -> None:
    """Show recordings, plans and comparisons so, wherever this IPython `DisplayFormatter` shows something."""
    for kind in (Recording, Plan, Diff):
        formatter.formatters["text/html"].for_type(kind, html)
    for kind in (Recording, Plan):
        formatter.formatters["text/plain"].for_type(kind, lambda thing, printer, _: printer.text(text(thing)))


def _findings(recording: Recording) -> tuple[Finding, ...]:
    settings = read_settings(Path.cwd())
    return select(find(recording), settings, roots(recording, settings)).findings
