"""What a measurement says in words: the table, and what makes its numbers worth less."""

from __future__ import annotations

from collections.abc import Sequence

from anymps._units import duration
from anymps.train.timing._timing import Timing

FEW_RUNS = 8
"""Below this many runs, all of them together do not enclose the median with 99 % confidence: 2 * 0.5**n > 0.01."""
WIDE_SPREAD = 0.10
"""The middle half of the runs should lie within this share of the median."""
SLOW_FIRST = 3.0
"""From this many medians on, the first call is worth a word."""
LARGE_SYNCHRONIZE = 0.10
"""From this share of a run on, the empty synchronise is worth a word."""

VIRTUAL = "virtual device: computed on this machine's CPU, so these are not a Mac's times"


def table(timings: Sequence[Timing]) -> str:
    """The timings as rows of plain text, with units."""
    head = ["", "device", "median", "middle half", "min", "max", "queued", "first", "runs"]
    rows = [head, *(_row(timing) for timing in timings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(_line(row, widths) for row in rows)


def warnings_of(timing: Timing) -> tuple[str, ...]:
    """What a reader of the numbers must know, one sentence each; nothing if they can be taken as they are."""
    median = timing.median_ns
    found = []
    if timing.virtual:
        found.append(VIRTUAL)
    if timing.n < FEW_RUNS:
        found.append(f"{timing.n} {'run is' if timing.n == 1 else 'runs are'} too few for a median: take {FEW_RUNS}")
    if timing.iqr_ns > WIDE_SPREAD * median:
        found.append(
            f"the middle half of the runs spreads over {100 * timing.iqr_ns / median:.0f} % of the median: "
            "something else was running, shapes changed, or the clock rate did"
            if median
            else "the clock is too coarse for a run this short: put more calls in one run"
        )
    if timing.first is not None and median and timing.first.finished_ns > SLOW_FIRST * median:
        why = "" if timing.virtual or timing.device == "cpu" else f"; on {timing.device} every new shape compiles first"
        found.append(
            f"the first call took {_time(timing.first.finished_ns)}, {timing.first.finished_ns / median:,.0f} times "
            f"the median, and is not counted{why}"
        )
    if timing.reads:
        found.append(f"reads a value inside, so the host waits there: {', '.join(timing.reads)}")
    run = median * timing.calls
    if run and timing.synchronize_ns > LARGE_SYNCHRONIZE * run:
        found.append(
            f"the synchronise alone takes {_time(timing.synchronize_ns)}, {100 * timing.synchronize_ns / run:.0f} % "
            "of a run: put more calls in one run"
        )
    return tuple(found)


def _row(timing: Timing) -> list[str]:
    low, high = timing.quartiles_ns
    runs = f"{timing.n:,}" if timing.calls == 1 else f"{timing.n:,} x {timing.calls:,} calls"
    return [
        timing.name,
        f"{timing.device} (virtual)" if timing.virtual else timing.device,
        _time(timing.median_ns),
        f"{_time(low)} - {_time(high)}",
        _time(timing.min_ns),
        _time(timing.max_ns),
        _time(timing.queue_ns),
        _time(timing.first.finished_ns) if timing.first else "-",
        runs,
    ]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*names, *numbers]).rstrip()


def _time(nanoseconds: float) -> str:
    return duration(nanoseconds) or "0"
