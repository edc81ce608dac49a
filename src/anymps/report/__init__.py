"""How a recording and its findings are shown, and how two recordings compare. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face
from anymps._text import clean, plural, size

if TYPE_CHECKING:
    from anymps.report._checked import own_kernels_sentence
    from anymps.report._outputs import STDOUT, Output, Outputs, check_file, is_recording, write_file
    from anymps.report._rule_page import rule_page
    from anymps.report.comparison import comparison_document, comparison_json
    from anymps.report.diff import Diff, compare, diff_document
    from anymps.report.document import Document, print_document, rendered
    from anymps.report.plan import plan_document, plan_json
    from anymps.report.run import print_summary, render_summary, render_terminal, report_pieces, run_document
    from anymps.report.upgrade import upgrade_document, upgrade_json

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
