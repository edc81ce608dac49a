"""Where a dispatch mode would be missing: threads that start while a recording runs, and the printing of tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from anymps.record._capture_stand_ins import StandIns


class Reach:
    """Stands in for `threading.Thread.start` (a mode is a thread's own) and the printer (which takes modes away)."""

    def __init__(self, mode: Callable[[], AbstractContextManager[Any]]) -> None:
        """`mode` makes a mode to enter."""
        self._mode = mode
        self._stand_ins = StandIns()

    def install(self) -> None:
        """Start to watch."""
        self._stand_ins.put(threading.Thread, "start", self._starting)
        self._stand_ins.put(torch._tensor_str, "_str_intern", self._printing)

    def remove(self) -> None:
        """Leave both as they were."""
        self._stand_ins.remove()

    def _starting(self, original: Any) -> Callable[..., Any]:
        def start(thread: threading.Thread) -> None:
            run = thread.run

            def recorded() -> None:
                del thread.run
                with self._mode():
                    run()

            thread.run = recorded  # type: ignore[method-assign]
            original(thread)

        return start

    def _printing(self, original: Any) -> Callable[..., Any]:
        def text_of(*args: Any, **kwargs: Any) -> Any:
            with self._mode():
                return original(*args, **kwargs)

        return text_of
