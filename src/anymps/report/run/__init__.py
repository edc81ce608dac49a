"""The forms of the report of one run: text, page, and what other programs read."""

from __future__ import annotations

from anymps.report.run._document import run_document
from anymps.report.run._forms import render_terminal, report_pieces
from anymps.report.run._summary import print_summary, render_summary
