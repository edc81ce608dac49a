"""Shows recordings in a notebook: each as its page, in a frame."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from anymps.findings import Finding, Story, find, read_settings, roots, select
from anymps.record import Recording
from anymps.report import render_summary, report_pieces

# Scripts of the page itself run, and reach nothing of the notebook.
_STYLE = "width: 100%; height: 640px; border: 1px solid #8884"
_FRAME = '<iframe srcdoc="{}" sandbox="allow-scripts" style="' + _STYLE + '"></iframe>'


def html(recording: Recording) -> str:
    """The page of a recording as a frame for a notebook."""
    return _FRAME.format(escape(_whole(recording, "html")))


def markdown(recording: Recording) -> str:
    """The same as Markdown, for viewers that show no frames."""
    return _whole(recording, "markdown")


def text(recording: Recording) -> str:
    """The short report, for a terminal."""
    return render_summary(Story.of(recording), _findings(recording)).rstrip("\n")


def register(formatter: Any) -> None:
    """Show recordings so, wherever this IPython `DisplayFormatter` shows something."""
    formatter.formatters["text/html"].for_type(Recording, html)
    formatter.formatters["text/markdown"].for_type(Recording, markdown)
    formatter.formatters["text/plain"].for_type(Recording, lambda thing, printer, _: printer.text(text(thing)))


def _whole(recording: Recording, form: str) -> str:
    return "".join(report_pieces(form, Story.of(recording), _findings(recording)))


def _findings(recording: Recording) -> tuple[Finding, ...]:
    settings = read_settings(Path.cwd())
    return select(find(recording), settings, roots(recording, settings)).findings
