"""Attributes that are replaced, and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """Remembers what stood where."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def put(self, owner: Any, name: str, value: object) -> None:
        """Set an attribute of a module or class."""
        former = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self.at_end((lambda: delattr(owner, name)) if former is _MISSING else (lambda: setattr(owner, name, former)))

    def at_end(self, undo: Callable[[], object]) -> None:
        """Call this when everything is put back."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back, the last one first."""
        while self._undo:
            self._undo.pop()()
