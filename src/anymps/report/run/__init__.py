"""The forms of the report of one run: text, page, and what other programs read."""

from __future__ import annotations

from anymps.report.run._forms import (
    Renderer,
    Running,
    print_terminal,
    render_terminal,
    renderer,
)
from anymps.report.run._summary import print_summary, render_summary
