"""Attributes that are replaced, and put back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

_MISSING = object()


class Patches(ExitStack):
    """Remembers what stood where; `close` puts everything back, the last one first."""

    def put(self, owner: Any, name: str, value: object) -> None:
        """Set an attribute of a module or class."""
        former = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self.callback(*((delattr, owner, name) if former is _MISSING else (setattr, owner, name, former)))
