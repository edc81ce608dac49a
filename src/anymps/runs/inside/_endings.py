"""How a script ended: its error in one line, and the lines of the exception."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from anymps._text import error_words

OF_ANYMPS: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
"""How names of anymps's own files begin."""


def trail_of(ending: Mapping[str, object]) -> list[tuple[str, int]]:
    """The lines of the exception that ended a script, the outermost first, without ours."""
    error = getattr(sys, "last_value", None) if "exception" in ending else None
    trace = getattr(error, "__traceback__", None)
    lines = []
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(("<", OF_ANYMPS)):
            lines.append((os.path.realpath(name), int(trace.tb_lineno)))
        trace = trace.tb_next
    return lines


def error_of(ending: Mapping[str, object]) -> str:
    """How a run ended, in one line; empty for one that ended with 0."""
    if not ending.get("status") and "exception" not in ending:
        return ""
    name = str(ending.get("exception", f"exit status {ending.get('status')}"))
    return error_words(name, _said(str(ending.get("message", ""))))


def _said(message: str) -> str:
    """What an exception says; of one that torch passes on from a worker, what was raised there."""
    if "Original Traceback" not in message:
        return message
    return next((line for line in reversed(message.splitlines()) if line[:1].isalpha()), message)
