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
from types import FrameType

from anymps._paths import is_library
from anymps.capture._core import Core

_CLOCKS = ("time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "monotonic_ns")
_TIMEIT = timeit.Timer.timeit.__code__.co_filename
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
    undo: list[Callable[[], None]] = []
    for owner, name, wrapped in [*((*clock, watched) for clock in clocks), (timeit.Timer, "timeit", timed)]:
        original = getattr(owner, name)
        replacement = wrapped(original)
        setattr(owner, name, replacement)
        undo.append(functools.partial(_put_back, owner, name, replacement, original))
    return undo


def _put_back(owner: object, name: str, ours: object, original: object) -> None:
    if getattr(owner, name) is ours:
        setattr(owner, name, original)
