"""The forms of a plan: text with drawings in characters, JSON, and a page."""

from __future__ import annotations

from anymps.report.plan._html import plan_page
from anymps.report.plan._json import plan_json
from anymps.report.plan._terminal import print_plan, render_plan

__all__ = ["plan_json", "plan_page", "print_plan", "render_plan"]
