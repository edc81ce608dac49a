"""Where a dispatch mode would be missing or in the way: threads that start, printing, torch.compile."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from anymps.capture.dispatch._stand_ins import StandIns


class Reach:
    """Stands in for `threading.Thread.start` (a mode is a thread's own), the printer (which takes modes away), and
    `torch.compile` (which would compile the mode)."""

    def __init__(self, mode: Callable[[], AbstractContextManager[Any]], keep_compiler_out: Callable[[], None]) -> None:
        """`mode` makes a mode to enter."""
        self._mode = mode
        self._keep_compiler_out = keep_compiler_out
        self._stand_ins = StandIns()

    def install(self) -> None:
        """Start to watch."""
        self._stand_ins.put(threading.Thread, "start", self._starting)
        self._stand_ins.put(torch._tensor_str, "_str_intern", self._printing)
        self._stand_ins.put(torch, "compile", self._compiling)

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

    def _compiling(self, original: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            compiled = original(*args, **kwargs)
            self._keep_compiler_out()
            return compiled

        return compile
