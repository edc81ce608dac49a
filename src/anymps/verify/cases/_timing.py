"""Timing calls: warm-up, the median of some runs, and whether the Mac paged."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anymps._text import first_line
from anymps.cost import OperatorCall
from anymps.verify.cases._timed_calls import Mode, TimedCall

if TYPE_CHECKING:
    from anymps.train.timing import Stopwatch

RUNS: Final = 9
_WARMUP: Final = 3
_MOST_CALLS: Final = 2000
_RUN_NS: Final = 100_000_000
"""One run lasts as long, of as many calls as that takes: the wait at its end does not count beside them."""


class Timed(NamedTuple):
    """A call that was timed on a machine.

    `seconds` is the median of its runs for one call, `spread` the distance between their quartiles divided by that
    median. `paged` is True if the machine swapped memory to disk meanwhile.
    """

    call: OperatorCall
    mode: Mode
    seconds: float
    spread: float = 0.0
    paged: bool = False


class Measurement(NamedTuple):
    """A case and its timing; `failure` in place of one, if torch refuses the call."""

    case: TimedCall
    timed: Timed | None
    failure: str = ""


def measure(
    cases: Iterable[TimedCall],
    watch: Stopwatch,
    prepare: Callable[[TimedCall, Any], Callable[[], object]],
    swapped: Callable[[], int],
) -> Iterator[Measurement]:
    """Time each case by the watch; `swapped` counts the pages that the machine wrote to disk so far."""
    return (_measurement(case, watch, prepare, swapped) for case in cases)


def _measurement(
    case: TimedCall,
    watch: Stopwatch,
    prepare: Callable[[TimedCall, Any], Callable[[], object]],
    swapped: Callable[[], int],
) -> Measurement:
    try:
        return Measurement(case, _timed(case, watch, prepare(case, watch.device), swapped))
    except (RuntimeError, NotImplementedError) as error:  # torch's own: a dtype or an operator that is not there
        return Measurement(case, None, first_line(str(error)) or type(error).__name__)


def _timed(case: TimedCall, watch: Stopwatch, function: Callable[[], object], swapped: Callable[[], int]) -> Timed:
    watch.time(function, _WARMUP)  # compiles
    first = watch.time(function, _WARMUP).finished_ns / _WARMUP
    calls = max(1, min(_MOST_CALLS, round(_RUN_NS / max(first, 1))))
    watch.time(function, calls)
    before = swapped()
    runs = [watch.time(function, calls).finished_ns / calls * 1e-9 for _ in range(RUNS)]
    middle = median(runs)
    first_quartile, _, third = quantiles(runs, n=4, method="inclusive")
    spread = (third - first_quartile) / middle if middle else 0.0
    return Timed(case.call, case.mode, middle, spread, swapped() > before)


def swapped_out() -> int:
    """How many pages macOS has written to disk since it started; 0 elsewhere, or if it does not say."""
    if sys.platform != "darwin":
        return 0
    try:
        answer = subprocess.run(["vm_stat"], check=False, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"^Swapouts:\s+(\d+)", answer, re.MULTILINE)
    return int(found[1]) if found else 0
