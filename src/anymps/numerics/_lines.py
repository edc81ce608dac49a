"""The line of the program that runs, where no recording says it."""

from __future__ import annotations

import sys
from types import FrameType

from anymps.device import native


def line_of_program() -> str:
    """`train.py:12`, the innermost frame that is neither torch's nor ours; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    core = native()
    while frame is not None:
        if not core.is_internal(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
