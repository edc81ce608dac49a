"""What was measured: numbers in nanoseconds, a table of them, ratios, and reasons to distrust them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import NamedTuple

from anymps._text import aligned, clean, duration, percent

FEW_RUNS = 8
"""Below this many runs, all of them together do not enclose the median with 99 % confidence: 2 * 0.5**n > 0.01."""
WIDE_SPREAD = 0.10
"""The interquartile range (IQR) of the runs should lie within this share of the median."""
SLOW_FIRST = 3.0
"""From this many medians on, the first call is worth a word."""
LARGE_SYNCHRONIZE = 0.10
"""From this share of a run on, the empty synchronise is worth a word."""

VIRTUAL = "virtual device: these are this machine's times, not a Mac's"


class Run(NamedTuple):
    """One timed run: the time until the host had queued the work, and until the device had finished it."""

    queued_ns: int
    finished_ns: int


@dataclass(frozen=True)
class Timing:
    """The result of a measurement.

    ``runs`` are the counted runs, each of ``calls`` calls between two synchronises; the numbers derived from them are
    for one call. ``first`` is the very first call, which compiles on a GPU; it is not counted (None: not measured).
    ``synchronize_ns`` is the time of a synchronise that has nothing to wait for, which is part of every run.
    ``virtual`` is True for the virtual device. ``more`` says how to get more runs, where there are too few.
    """

    name: str
    device: str
    runs: tuple[Run, ...]
    first: Run | None = None
    calls: int = 1
    synchronize_ns: int = 0
    virtual: bool = False
    more: str = f"take {FEW_RUNS}"

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("a timing needs at least one run")

    @property
    def n(self) -> int:
        """How many runs count."""
        return len(self.runs)

    @property
    def times_ns(self) -> tuple[float, ...]:
        """Time of one call, run by run, until the device had finished."""
        return tuple(run.finished_ns / self.calls for run in self.runs)

    @property
    def median_ns(self) -> float:
        """Median of the times of one call."""
        return statistics.median(self.times_ns)

    @property
    def queue_ns(self) -> float:
        """Median time of one call until the host was free again."""
        return statistics.median(run.queued_ns for run in self.runs) / self.calls

    @property
    def min_ns(self) -> float:
        """The fastest call."""
        return min(self.times_ns)

    @property
    def max_ns(self) -> float:
        """The slowest call."""
        return max(self.times_ns)

    @property
    def quartiles_ns(self) -> tuple[float, float]:
        """The first and the third quartile: the middle half of the times lies between them."""
        if self.n == 1:
            return self.median_ns, self.median_ns
        low, _, high = statistics.quantiles(self.times_ns, n=4, method="inclusive")
        return low, high

    @property
    def iqr_ns(self) -> float:
        """Width of the middle half of the times (interquartile range)."""
        low, high = self.quartiles_ns
        return high - low

    def to_json(self) -> dict[str, object]:
        """Everything as plain data; times in nanoseconds."""
        return {
            "name": self.name,
            "device": self.device,
            "virtual": self.virtual,
            "runs": self.n,
            "calls_per_run": self.calls,
            "median_ns": self.median_ns,
            "quartiles_ns": list(self.quartiles_ns),
            "min_ns": self.min_ns,
            "max_ns": self.max_ns,
            "queue_median_ns": self.queue_ns,
            "first_ns": self.first.finished_ns if self.first else None,
            "synchronize_ns": self.synchronize_ns,
            "times_ns": list(self.times_ns),
            "warnings": list(warnings_of(self)),
        }


@dataclass(frozen=True)
class Ratio:
    """How many times as fast ``name`` is as ``base``, by the median over the rounds; a ``value`` above 1 is faster."""

    name: str
    base: str
    value: float

    def __str__(self) -> str:
        factor, word = (self.value, "fast") if self.value > 1 else (1 / self.value, "slow")
        return f"{clean(self.name)}: {factor:.2f} times as {word} as {clean(self.base)}"

    def to_json(self) -> dict[str, object]:
        """Everything as plain data."""
        return {"name": self.name, "base": self.base, "times_as_fast": self.value, "text": str(self)}


@dataclass(frozen=True)
class Comparison:
    """Timings that were taken alternately, and the ratio of each to the first."""

    timings: tuple[Timing, ...]

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """All but the first, beside the first."""
        base, *others = self.timings
        return tuple(_ratio(other, base) for other in others)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to distrust the numbers; a reason that concerns one of several timings names it."""
        texts: dict[str, list[str]] = {}
        for timing in self.timings:
            for text in warnings_of(timing):
                texts.setdefault(text, []).append(clean(timing.name))
        return tuple(
            text if len(names) == len(self.timings) else f"{', '.join(names)}: {text}" for text, names in texts.items()
        )

    def to_json(self) -> dict[str, object]:
        """Everything as plain data; times in nanoseconds."""
        return {
            "timings": [timing.to_json() for timing in self.timings],
            "ratios": [ratio.to_json() for ratio in self.ratios],
        }

    def __str__(self) -> str:
        rows = aligned([_COLUMNS, *map(_row, self.timings)], (0, 1))
        return "\n".join([*rows, *map(str, self.ratios), *(f"warning: {text}" for text in self.warnings)])


def _ratio(timing: Timing, base: Timing) -> Ratio:
    """Both times of a round saw the same state of the machine. A coarse clock gives zeros."""
    pairs = zip(base.times_ns, timing.times_ns, strict=True)
    value = statistics.median(max(first, 1e-3) / max(other, 1e-3) for first, other in pairs)
    return Ratio(timing.name, base.name, value)


_COLUMNS = ("", "device", "median", "IQR", "min", "max", "queued", "first", "runs")


def warnings_of(timing: Timing) -> tuple[str, ...]:
    """Reasons to distrust the numbers, one sentence each; empty if there are none."""
    median = timing.median_ns
    found = []
    if timing.virtual:
        found.append(VIRTUAL)
    if timing.n < FEW_RUNS:
        found.append(f"{timing.n} {'run is' if timing.n == 1 else 'runs are'} too few for a median: {timing.more}")
    if timing.iqr_ns > WIDE_SPREAD * median:
        found.append(
            f"noisy: IQR is {percent(timing.iqr_ns / median)} of the median: "
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
    run = median * timing.calls
    if run and timing.synchronize_ns > LARGE_SYNCHRONIZE * run:
        found.append(
            f"the synchronise alone takes {_time(timing.synchronize_ns)}, {percent(timing.synchronize_ns / run)} "
            "of a run: put more calls in one run"
        )
    return tuple(found)


def _row(timing: Timing) -> list[str]:
    low, high = timing.quartiles_ns
    runs = f"{timing.n:,}" if timing.calls == 1 else f"{timing.n:,} x {timing.calls:,} calls"
    return [
        clean(timing.name),
        f"{timing.device} (virtual)" if timing.virtual else timing.device,
        _time(timing.median_ns),
        f"{_time(low)} - {_time(high)}",
        _time(timing.min_ns),
        _time(timing.max_ns),
        _time(timing.queue_ns),
        _time(timing.first.finished_ns) if timing.first else "-",
        runs,
    ]


def _time(nanoseconds: float) -> str:
    return duration(nanoseconds) or "0"
