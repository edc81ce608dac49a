"""What changed between two recordings, and its forms: text, JSON and a page."""

from __future__ import annotations

from anymps.report.diff._compare import Diff, compare
from anymps.report.diff._html import render_diff_html
from anymps.report.diff._json import render_diff_json
from anymps.report.diff._terminal import render_diff_terminal

__all__ = ["Diff", "compare", "render_diff_html", "render_diff_json", "render_diff_terminal"]
