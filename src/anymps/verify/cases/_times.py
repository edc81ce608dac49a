"""Cases of times: calls as the public tables of timings have them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from anymps.device import is_virtual
from anymps.verify.cases._case import Answer, Case
from anymps.verify.cases._timed_calls import TIMED_CALLS, TimedCall, prepare
from anymps.verify.cases._timing import measure, swapped_out

if TYPE_CHECKING:
    from anymps.train.timing import Stopwatch


def time_cases() -> list[Case]:
    """All calls that are timed."""
    return [Case(f"{call.text} {call.mode}", functools.partial(_timed, call)) for call in TIMED_CALLS]


def _timed(call: TimedCall) -> Answer:
    if is_virtual():
        return {"does": "unasked", "text": "the virtual device's times are not a Mac's"}
    (found,) = measure([call], _watch(), prepare, swapped_out)
    if found.timed is None:
        return {"does": "refuses", "error": "RuntimeError", "text": found.failure}
    timed = found.timed
    return {"seconds": timed.seconds, "spread": timed.spread, "paged": timed.paged, "mode": timed.mode}


@functools.cache
def _watch() -> Stopwatch:
    from anymps.train.timing import Stopwatch

    return Stopwatch.of("mps")
