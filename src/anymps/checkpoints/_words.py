"""Text from a file that may be hostile, made safe for one line of a message."""

from __future__ import annotations


def printable(text: str) -> str:
    """A name from a file on one line, without control characters and not longer than a line."""
    line = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "replace").decode() for letter in text
    )
    return line if len(line) <= 200 else f"{line[:199]}…"
