"""How a recording and its findings are shown. Needs no torch."""

from __future__ import annotations

from anymps.report._renderer import Renderer
from anymps.report._rule_page import rule_page
from anymps.report._terminal import TerminalRenderer, print_terminal, render_terminal

__all__ = ["Renderer", "TerminalRenderer", "print_terminal", "render_terminal", "rule_page"]
