"""Lists of operators' names, as they are looked up here."""

from __future__ import annotations


def names_of(text: str) -> frozenset[str]:
    """The names in a text, separated by blanks."""
    return frozenset(text.split())
