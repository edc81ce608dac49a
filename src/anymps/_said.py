"""Lines on standard error: where it is closed, or its device is full, they are not said, and nothing fails for that."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def tell(text: object, stream: TextIO | None = None) -> None:
    """Print a text on standard error, or another stream of the process's own words."""
    stream = stream if stream is not None else sys.stderr
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a script may put anything in its place
        print(text, file=stream, flush=True)


def can_tell() -> None:
    """Have a standard error where there is none, so that no file gets its number, and no library stumbles."""
    if sys.stderr is None:  # closed by whoever started us (`2>&-`)
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - to the end of the process


def forget_untold() -> None:
    """Drop what standard error could not take, which Python would try again at its end, and end with 120 for it."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
