"""The result of a measurement: plain data and its statistics. Times are nanoseconds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import NamedTuple


class Run(NamedTuple):
    """One timed run: until the host had queued the work, and until the device had finished it."""

    queued_ns: int
    finished_ns: int


@dataclass(frozen=True)
class Timing:
    """What a measurement saw.

    ``runs`` are the counted runs, each of ``calls`` calls between two synchronises; the numbers derived from them are
    for one call. ``first`` is the very first call, which on a GPU compiles; it is not counted (None: not measured).
    ``synchronize_ns`` is what a synchronise with nothing to wait for takes, a part of every run. ``reads`` are the
    places inside where a value was read from the device. ``virtual``: the device is anymps' own, not a Mac's.
    """

    name: str
    device: str
    runs: tuple[Run, ...]
    first: Run | None = None
    calls: int = 1
    synchronize_ns: int = 0
    reads: tuple[str, ...] = field(default=())
    virtual: bool = False

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
        """The middle half of the times lies between these."""
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
        from anymps.train.timing._words import warnings_of

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
            "reads": list(self.reads),
            "times_ns": list(self.times_ns),
            "warnings": list(warnings_of(self)),
        }

    def __str__(self) -> str:
        from anymps.train.timing._words import table, warnings_of

        return "\n".join([table([self]), *(f"warning: {text}" for text in warnings_of(self))])
