"""How many times as fast one function is as another, and how certain that is, from alternating runs.

The two times of one round saw the same state of the machine, so their ratio is compared. The interval of the median
ratio is the inverted sign test's: it lies between two of the sorted ratios, and the binomial distribution gives its
confidence. It assumes nothing about how times are distributed, and draws no random numbers.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from anymps._text import clean
from anymps.train.timing._timing import Timing, table, warnings_of

SURE, LIKELY = 0.01, 0.05  # the chance of an interval that does not hold the true ratio
SAME = 0.01
"""A ratio within this of 1 makes no difference that matters."""


class Certainty(enum.Enum):
    """How certain a difference is."""

    SURE = "surely"
    LIKELY = "probably"
    SAME = "the same within 1 %"
    UNSEEN = "no difference seen"
    TOO_FEW = "too few rounds"


@dataclass(frozen=True)
class Ratio:
    """How many times as fast ``name`` is as ``base``; a ``value`` above 1 is faster.

    ``low`` and ``high`` enclose it with 99 % confidence if that shows a difference, otherwise with 95 %. Both are None
    if there are too few rounds.
    """

    name: str
    base: str
    value: float
    low: float | None
    high: float | None
    certainty: Certainty
    rounds: int

    def __str__(self) -> str:
        name, base = clean(self.name), clean(self.base)
        if self.low is None or self.high is None:
            return f"{name}: too few rounds to compare it with {base} ({self.rounds})"
        between = f"({self.low:.2f} to {self.high:.2f} times)"
        if self.certainty is Certainty.UNSEEN:
            return f"{name}: no difference from {base} seen {between}"
        if self.certainty is Certainty.SAME:
            return f"{name}: as fast as {base}, within 1 % {between}"
        factor, word = (self.value, "fast") if self.value > 1 else (1 / self.value, "slow")
        low, high = (self.low, self.high) if self.value > 1 else (1 / self.high, 1 / self.low)
        sure = self.certainty.value
        return f"{name}: {factor:.2f} times as {word} as {base}, {sure} ({low:.2f} to {high:.2f})"

    def to_json(self) -> dict[str, object]:
        """Everything as plain data."""
        return {
            "name": self.name,
            "base": self.base,
            "times_as_fast": self.value,
            "low": self.low,
            "high": self.high,
            "certainty": self.certainty.value,
            "rounds": self.rounds,
            "text": str(self),
        }


@dataclass(frozen=True)
class Comparison:
    """Timings that were taken alternately, and the ratio of each to the first."""

    timings: tuple[Timing, ...]

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """All but the first, beside the first."""
        base, *others = self.timings
        return tuple(ratio_of(other, base, len(others)) for other in others)

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
        return "\n".join([table(self.timings), *map(str, self.ratios), *(f"warning: {text}" for text in self.warnings)])


def ratio_of(timing: Timing, base: Timing, comparisons: int = 1) -> Ratio:
    """Compare two timings whose runs were taken in turns, as one of several comparisons with the same base.

    Raises ValueError if their runs are not as many.
    """
    if timing.n != base.n:
        raise ValueError("runs that did not alternate cannot be compared")
    pairs = zip(base.times_ns, timing.times_ns, strict=True)
    ratios = sorted(max(first, 1e-3) / max(other, 1e-3) for first, other in pairs)  # a coarse clock gives zeros
    value = statistics.median(ratios)
    # Several comparisons have several chances to be wrong (Bonferroni).
    for level, certainty in ((SURE, Certainty.SURE), (LIKELY, Certainty.LIKELY)):
        found = median_interval(ratios, level / comparisons)
        if found is not None and 1 - SAME < found[0] and found[1] < 1 + SAME:
            return Ratio(timing.name, base.name, value, *found, Certainty.SAME, timing.n)
        if found is not None and not found[0] <= 1 <= found[1]:
            return Ratio(timing.name, base.name, value, *found, certainty, timing.n)
    if found is None:
        return Ratio(timing.name, base.name, value, None, None, Certainty.TOO_FEW, timing.n)
    return Ratio(timing.name, base.name, value, *found, Certainty.UNSEEN, timing.n)


def median_interval(values: Sequence[float], chance: float) -> tuple[float, float] | None:
    """The narrowest pair of sorted values that miss the true median with at most this chance; None if none does.

    A value lies below the median with chance 1/2, so the number of those that do is binomial.
    """
    n = len(values)
    part, whole = chance.as_integer_ratio()  # whole numbers: 2**n is no float from a thousand rounds on
    inside, ways, tail = 0, 1, 1
    while 2 * tail * whole <= part * 2**n:
        ways = ways * (n - inside) // (inside + 1)
        tail += ways
        inside += 1
    return (values[inside - 1], values[n - inside]) if inside else None
