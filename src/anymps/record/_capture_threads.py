"""Threads that start while a recording runs: a dispatch mode is a thread's own, so each gets one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


class Threads:
    """Stands in for `threading.Thread.start`."""

    def __init__(self, mode: Callable[[], AbstractContextManager[Any]]) -> None:
        """`mode` makes the mode of a thread."""
        self._mode = mode
        self._original: Any = None
        self._replacement: Any = None

    def install(self) -> None:
        """Start to watch."""
        original, mode = threading.Thread.start, self._mode

        def start(thread: threading.Thread) -> None:
            run = thread.run

            def recorded() -> None:
                del thread.run  # type: ignore[method-assign]
                with mode():
                    run()

            thread.run = recorded  # type: ignore[method-assign]
            original(thread)

        self._original, self._replacement = original, start
        threading.Thread.start = start  # type: ignore[method-assign]

    def remove(self) -> None:
        """Leave `threading` as it was."""
        if self._original is not None and threading.Thread.start is self._replacement:
            threading.Thread.start = self._original  # type: ignore[method-assign]
        self._original = None
