"""Functions of torch and Python that are replaced while a recording runs, and put back afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StandIns:
    """The replacements of one watcher."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, wrap: Callable[[Any], Callable[..., Any]]) -> None:
        """Replace `owner.name` by what `wrap` makes of it; nothing where there is none in this torch."""
        original = getattr(owner, name, None)
        if original is None:
            return
        replacement = wrap(original)
        setattr(owner, name, replacement)

        def undo() -> None:
            if getattr(owner, name) is replacement:  # else somebody has replaced it in turn
                setattr(owner, name, original)

        self._undo.append(undo)

    def remove(self) -> None:
        """Put all back, the last first."""
        while self._undo:
            self._undo.pop()()
