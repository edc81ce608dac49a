"""How a recording and its findings are shown, and how two recordings compare. Needs no torch."""

from __future__ import annotations

from anymps.report._diff import Diff, compare
from anymps.report._diff_json import render_diff_json
from anymps.report._diff_terminal import render_diff_terminal
from anymps.report._forms import FORMATS, renderer
from anymps.report._plan_html import plan_page
from anymps.report._plan_json import plan_json
from anymps.report._plan_terminal import print_plan, render_plan
from anymps.report._renderer import Renderer
from anymps.report._rule_page import rule_page
from anymps.report._summary import print_summary, render_summary
from anymps.report._terminal import TerminalRenderer, print_terminal, render_terminal

__all__ = [
    "FORMATS",
    "Diff",
    "Renderer",
    "TerminalRenderer",
    "compare",
    "plan_json",
    "plan_page",
    "print_plan",
    "print_summary",
    "print_terminal",
    "render_diff_json",
    "render_diff_terminal",
    "render_plan",
    "render_summary",
    "render_terminal",
    "renderer",
    "rule_page",
]
