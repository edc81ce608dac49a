"""Clock reads of the user's code, as marks on the tape: `time.perf_counter()` and its like, watched while recording.

Only calls through the modules `time` and `timeit` are seen, and names that were imported from them after the recording
began. A call costs the caller's file name looked up in a dictionary, and about a microsecond where a mark is written.
"""

from __future__ import annotations

import functools
import sys
import time
import timeit
from collections.abc import Callable
from types import FrameType, ModuleType

from anymps._paths import is_library
from anymps.capture._core import Core

_CLOCKS = ("time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "monotonic_ns")
_MARK = "anymps::clock {}"
_MOST_MARKS = 10_000  # a program that waits by asking the clock would fill the tape


def watch_clocks(core: Core) -> list[Callable[[], None]]:
    """Start to watch; what is returned ends it, where nobody else has replaced a clock meanwhile."""
    users: dict[str, bool] = {}
    left = [_MOST_MARKS]

    def is_users(frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        known = users.get(file)
        if known is None:
            known = users[file] = not (core.is_internal(file) or is_library(file))
        return known

    def watched(clock: Callable[[], float]) -> Callable[[], float]:
        @functools.wraps(clock)
        def read() -> float:
            value = clock()
            if left[0] > 0 and is_users(sys._getframe(1)):
                left[0] -= 1
                core.note_pair(_MARK, core.current_site(), 0)
            return value

        return read

    undo: list[Callable[[], None]] = []
    for module, name in [*((time, name) for name in _CLOCKS), (timeit, "default_timer")]:
        original = getattr(module, name)
        replacement = watched(original)
        setattr(module, name, replacement)
        undo.append(functools.partial(_put_back, module, name, replacement, original))
    return undo


def _put_back(module: ModuleType, name: str, ours: object, original: object) -> None:
    if getattr(module, name) is ours:
        setattr(module, name, original)
