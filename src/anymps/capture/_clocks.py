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

from anymps._paths import is_library
from anymps.capture._core import Core, Undo, stand_in

_CLOCKS = ("time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "monotonic_ns")
_MARK = "anymps::clock {}"
_MOST_MARKS = 10_000  # a program that waits by asking the clock would fill the tape


def watch_clocks(core: Core) -> list[Undo]:
    """Start to watch; what is returned ends it."""
    left = [_MOST_MARKS]

    @functools.cache
    def is_users(file: str) -> bool:
        return not (core.is_internal(file) or is_library(file))

    def watched(clock: Callable[[], float]) -> Callable[[], float]:
        @functools.wraps(clock)
        def read() -> float:
            value = clock()
            if left[0] > 0 and is_users(sys._getframe(1).f_code.co_filename):
                left[0] -= 1
                core.note_pair(_MARK, core.current_site(), 0)
            return value

        return read

    clocks = [*((time, name) for name in _CLOCKS), (timeit, "default_timer")]
    return [stand_in(module, name, watched(getattr(module, name))) for module, name in clocks]
