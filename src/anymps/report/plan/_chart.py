"""A plan's drawings in characters: memory over the measured steps, and the peak against each Mac; no colour needed.

What may not be encoded is drawn in ASCII: letters for what the memory is used for, and plain signs for the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from anymps._text import duration_short, step_name
from anymps.plan import Batches, Plan
from anymps.record import Category, MemoryStory, Sample
from anymps.report import _text as text
from anymps.report.document import Glyphs
from anymps.report.plan._words import HIGH, LOW, needed

WIDEST: Final = 78
"""Columns that a drawing takes at most: with its indentation the 80 of a terminal, or of a mail."""

_HEIGHT = 12
_PAST_LIMIT = 4  # columns behind the limit's line, for peaks beyond it


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale of times in seconds, or of rates, and the round ones on it."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, spans: Sequence[tuple[float, float]]) -> LogScale:
        """A scale on which all these spans lie."""
        low, high = min(span[0] for span in spans), max(span[1] for span in spans)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        round_ones = (digit * 10.0**power for power in powers for digit in (1, 2, 5))
        return cls(low, high, tuple(number for number in round_ones if low <= number <= high))

    def at(self, value: float) -> float:
        """Where a value lies: 0 at the left end, 1 at the right one."""
        return math.log(value / self.low) / math.log(self.high / self.low) if self.high > self.low else 0.0


def memory_chart(story: MemoryStory, width: int, glyphs: Glyphs) -> list[str]:
    """Memory over the measured steps, stacked by what it is used for, the peak marked; a legend below.

    From left to right are allocations in their order: a plan knows no times. Each column shows the highest moment of
    its stretch.
    """
    samples = story.samples(width)
    if not samples or story.peak is None:
        return []
    top = max(sum(sample.by_category) for sample in samples)
    labels = [text.size(top), text.size(top / 2), "0"]
    margin = max(map(len, labels)) + 1
    columns = _spread(samples, min(width, WIDEST) - margin)
    lines = [_peak_line(columns, top, margin, glyphs)]
    for row in range(_HEIGHT, 0, -1):
        label = {_HEIGHT: labels[0], _HEIGHT // 2: labels[1], 1: ""}.get(row, "")
        level = (row - 0.5) * top / _HEIGHT
        lines.append(f"{label:>{margin - 1}} " + "".join(_cell(sample, level, glyphs) for sample in columns))
    lines += _step_lines(columns, margin, glyphs)
    used = [place for place in range(len(Category)) if any(sample.by_category[place] for sample in samples)]
    names = [category.value for category in Category]
    lines += _wrapped([f"{glyphs.bands[place]} {names[place]}" for place in used], margin, min(width, WIDEST))
    return [line.rstrip() for line in lines]


def _spread(samples: Sequence[Sample], width: int) -> list[Sample]:
    """So many columns: few samples take several each, of too many the highest of each stretch is kept."""
    if len(samples) <= width:
        return [samples[column * len(samples) // width] for column in range(width)]
    edges = [column * len(samples) // width for column in range(width + 1)]
    stretches = (samples[start:end] for start, end in itertools.pairwise(edges))
    return [max(stretch, key=lambda sample: sum(sample.by_category)) for stretch in stretches]


def _cell(sample: Sample, level: float, glyphs: Glyphs) -> str:
    below = 0
    for place, size in enumerate(sample.by_category):
        below += size
        if level < below:
            return glyphs.bands[place]
    return " "


def _peak_line(columns: Sequence[Sample], top: int, margin: int, glyphs: Glyphs) -> str:
    at = next(place for place, sample in enumerate(columns) if sum(sample.by_category) == top)
    words = f"peak, {text.size(top)}, {step_name(columns[at].step)}"
    start = margin + at
    if start + 2 + len(words) <= margin + len(columns):
        return f"{'':{start}}{glyphs.peak} {words}"
    return f"{words} {glyphs.peak}".rjust(start + 1)


def _step_lines(columns: Sequence[Sample], margin: int, glyphs: Glyphs) -> list[str]:
    """The floor with a mark where each step begins, and its number where there is room."""
    floor = [glyphs.floor] * len(columns)
    names = [" "] * (len(columns) + 12)
    free = 0
    for place, sample in enumerate(columns):
        if place and sample.step == columns[place - 1].step:
            continue
        floor[place] = glyphs.step
        name = step_name(sample.step)
        if place >= free and place + len(name) <= len(columns):
            names[place : place + len(name)] = name
            free = place + len(name) + 2
    return [f"{'0':>{margin - 1}} {''.join(floor)}", " " * margin + "".join(names)]


def _wrapped(words: Sequence[str], margin: int, width: int) -> list[str]:
    lines = [" " * margin]
    for word in words:
        if len(lines[-1]) + len(word) > width and lines[-1].strip():
            lines.append(" " * margin)
        lines[-1] += f"{word}   "
    return lines


def mac_chart(plan: Plan, width: int, glyphs: Glyphs) -> list[str]:
    """A bar for each Mac, on a scale of its own: the working set and torch's limit stand at the same places in all."""
    names = [row.outcome.mac.name for row in plan.rows]
    verdicts = [row.outcome.verdict.value for row in plan.rows]
    left, middle = max(map(len, names)) + 2, max(map(len, verdicts)) + 1
    limit = min(width, WIDEST) - left - middle - _PAST_LIMIT - 1
    marks = {
        round(limit / HIGH): glyphs.working_set,
        round(limit * LOW / HIGH): glyphs.low,
        limit: glyphs.limit,
    }
    head = [" "] * (left + middle + limit + _PAST_LIMIT + 1)
    for place, word in ((round(limit / HIGH), "working set"), (limit, "limit")):
        end = left + middle + place + 1
        head[end - len(word) : end] = word
    lines = ["".join(head)]
    for row, name, said in zip(plan.rows, names, verdicts, strict=True):
        outcome = row.outcome
        filled = max(1, round(limit * needed(plan, outcome) / (HIGH * outcome.mac.recommended_max_memory)))
        cells = [glyphs.bar if place < filled else " " for place in range(limit + _PAST_LIMIT)]
        for place, mark in marks.items():
            cells[place] = mark
        if filled > limit + _PAST_LIMIT:
            cells[-1] = glyphs.more
        lines.append(f"{name:<{left}}{said:<{middle}}{''.join(cells)}")
    meanings = [
        f"{glyphs.working_set} what Metal recommends, above it macOS pages",
        f"{glyphs.low} {LOW:g} times: torch returns its cache",
        f"{glyphs.limit} {HIGH:g} times: torch fails",
    ]
    lines += _wrapped(meanings, 0, min(width, WIDEST))
    return [line.rstrip() for line in lines]


def time_chart(plan: Plan, width: int, glyphs: Glyphs) -> list[str]:
    """A step on each Mac with a predicted time, and its interval, on one logarithmic scale."""
    rows = [
        (mac_time.mac.name, mac_time.time.low, mac_time.time.seconds, mac_time.time.high)
        for mac_time in plan.times
        if mac_time.time is not None
    ]
    return _intervals(rows, width, glyphs, lambda seconds: duration_short(1e9 * seconds))


def batch_chart(batches: Batches, width: int, glyphs: Glyphs) -> list[str]:
    """Samples a second by batch, each with its interval, on one logarithmic scale."""
    rows = [
        (f"batch {batch_time.batch:,}", batch_time.low, batch_time.samples, batch_time.high)
        for batch_time in batches.rows
    ]
    return _intervals(rows, width, glyphs, lambda number: f"{number:,g}/s")


def _intervals(
    rows: Sequence[tuple[str, float, float, float]], width: int, glyphs: Glyphs, said_as: Callable[[float], str]
) -> list[str]:
    """A line for each name with its low, middle and high value, and the axis below."""
    if not rows:
        return []
    left = max(len(name) for name, *_ in rows) + 2
    scale = LogScale.of([(low, high) for _, low, _, high in rows])
    columns = min(width, WIDEST) - left - 1
    lines = []
    for name, *values in rows:
        cells = [" "] * (columns + 1)
        low, at, high = (round(columns * scale.at(value)) for value in values)
        cells[low : high + 1] = glyphs.floor * (high + 1 - low)
        cells[at] = glyphs.dot
        lines.append(f"{name:<{left}}{''.join(cells)}")
    axis, names = [glyphs.floor] * (columns + 1), [" "] * (columns + 12)
    free = 0
    for value in scale.ticks:
        place, said = round(columns * scale.at(value)), said_as(value)
        axis[place] = glyphs.step
        if place >= free and place + len(said) <= columns + 1:
            names[place : place + len(said)] = said
            free = place + len(said) + 2
    lines += [" " * left + "".join(axis), " " * left + "".join(names)]
    return [line.rstrip() for line in lines]
