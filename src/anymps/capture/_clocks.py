"""Clock reads of the user's code, as marks on the tape: `time.perf_counter()` and its like, watched while recording.

Only calls through the modules `time` and `timeit` are seen, and names that were imported from them after the recording
began. `timeit.timeit` counts as two reads at the line that calls it. A call costs the caller's file name looked up in a
dictionary, and about a microsecond where a mark is written.
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
_TIMEIT = timeit.Timer.timeit.__code__.co_filename
_MARK = "anymps::clock {}"
_MOST_MARKS = 10_000  # a program that waits by asking the clock would fill the tape


def watch_clocks(core: Core) -> list[Undo]:
    """Start to watch; what is returned ends it, where nobody else has replaced a clock meanwhile."""
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

    def timed(original: Callable[..., float]) -> Callable[..., float]:
        @functools.wraps(original)
        def run(*args: object, **options: object) -> float:
            caller = sys._getframe(1)
            while caller.f_code.co_filename == _TIMEIT and caller.f_back is not None:
                caller = caller.f_back
            site = core.site(caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name, "")
            core.note_pair(_MARK, site, 0)
            try:
                return original(*args, **options)
            finally:
                core.note_pair(_MARK, site, 0)

        return run

    clocks = [*((time, name) for name in _CLOCKS), (timeit, "default_timer")]
    watches = [*((*clock, watched) for clock in clocks), (timeit.Timer, "timeit", timed)]
    return [stand_in(owner, name, wrapped(getattr(owner, name))) for owner, name, wrapped in watches]
