"""The drawings of steps and memory, as numbers for their template: horizontal places in per cent, heights in pixels.

No charting library draws bars on tracks, as a step needs. This SVG can be printed, works without JavaScript, follows
the page's colours, and can be read by screen readers.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

from anymps._text import step_name
from anymps.record import Category, MemoryStory, Sample, StepSum
from anymps.report import _text as text
from anymps.report._lanes import TICKS, round_

_TICKS_APART: Final = 0.16  # of the width: a label on a phone
_POINTS: Final = 400  # of the curve of memory
_MOST_BARS: Final = 200
_WIDEST_BAR: Final = 3.0  # per cent
_TALLEST: Final = 4  # times the ordinary bar
_BAR_TOP, _BAR_BOTTOM = 24, 112


def runs_drawing(sums: Sequence[StepSum], *, on_mac: bool) -> dict[str, Any] | None:
    """The length of every step of the run; None if there are fewer than two."""
    if len(sums) < 2:
        return None
    size = -(-len(sums) // _MOST_BARS)
    groups = [sums[place : place + size] for place in range(0, len(sums), size)]
    later = [step.duration_ns for step in sums[1:]]
    # The first step compiles and allocates, and any may wait for a busy machine: drawn to scale, one such flattens all.
    tops = [max(step.duration_ns for step in group) for group in groups]
    longest = min(max(later), int(_TALLEST * statistics.median(tops))) or 1
    width = 100 / len(groups)
    bars = []
    for place, (group, top) in enumerate(zip(groups, tops, strict=True)):
        height = max((_BAR_BOTTOM - _BAR_TOP) * min(top / longest, 1), 1)
        bars.append(
            {
                "at": round_(place * width + 0.1 * width),
                "width": round_(min(0.8 * width, _WIDEST_BAR)),
                "cut": top > longest,
                "top": round_(_BAR_BOTTOM - height),
                "height": round_(height),
                "title": _group_title(group),
            }
        )
    each = f" Each bar is the longest of {size} steps." if size > 1 else ""
    waits = sorted({step.waits for step in sums})
    spread = text.plural(waits[0], "wait") if len(waits) == 1 else f"{waits[0]} to {waits[-1]} waits"
    here = " Times are this machine's." if not on_mac else ""
    sentence = f"{text.plural(len(sums), 'step')}, {spread} in each.{_cut_off(sums, longest)}{each}{here}"
    return {
        "sentence": sentence,
        "label": f"Length of every step. {sentence} The longest after the first took {text.duration(max(later))}.",
        "highest": text.duration(longest),
        "bars": bars,
        "first": f"{sums[0].step + 1:,}",
        "last": f"{sums[-1].step + 1:,}",
    }


def _cut_off(sums: Sequence[StepSum], longest: int) -> str:
    """Which steps are longer than the tallest bar; a sentence, or nothing."""
    beyond = [step for step in sums if step.duration_ns > longest]
    if not beyond:
        return ""
    most = text.duration(max(step.duration_ns for step in beyond))
    first = beyond[0] is sums[0]
    if len(beyond) == 1:
        which = "The first" if first else step_name(beyond[0].step).capitalize()
        return f" {which} took {most} and is cut off."
    which = f"{len(beyond)} steps{', the first among them,' if first else ''}"
    return f" {which} took longer than {text.duration(longest)}, up to {most}, and are cut off."


def memory_drawing(story: MemoryStory) -> dict[str, Any] | None:
    """Memory over the steps, stacked by what it is used for, with the peak; None if there is too little of it.

    From left to right are allocations in their order: by time, the start of a run would take most of the room, and a
    plan knows no times.
    """
    samples = story.samples(_POINTS)
    if len(samples) < 2:
        return None
    sums = [sum(sample.by_category) for sample in samples]
    peak = max(sums)
    across = [place / (len(samples) - 1) for place in range(len(samples))]
    highest = max(peak, *(sample.reserved for sample in samples)) or 1
    bands, driver = _stacked(samples, across, highest)
    at = sums.index(peak)
    step = step_name(samples[at].step)
    held = ", ".join(f"{band['name']} {band['most']}" for band in bands) or "nothing"
    return {
        "label": f"Memory over the steps. At most {text.size(peak) or 'nothing'}, in {step}. "
        f"At most by use: {held}. The tables below have the numbers for the peak.",
        "highest": text.size(highest),
        "ticks": _step_ticks(samples, across),
        "bands": bands,
        "driver": driver,
        "peak": {
            "at": round_(100 * across[at]),
            "top": round_(20 + 140 - 138 * peak / highest),
            "name": f"peak {text.size(peak)}, {step}",
            "anchor": "end" if across[at] > 0.5 else "start",
            "shift": -8 if across[at] > 0.5 else 8,
        },
    }


def _step_ticks(samples: Sequence[Sample], across: Sequence[float]) -> list[dict[str, Any]]:
    first: dict[int, float] = {}
    for sample, at in zip(samples, across, strict=True):
        first.setdefault(sample.step, at)
    every = -(-len(first) // TICKS)
    ticks: list[dict[str, Any]] = []
    last = -1.0
    for step, at in list(first.items())[::every]:
        if at - last >= _TICKS_APART:
            ticks.append({"at": round_(100 * at), "label": step_name(step)})
            last = at
    return ticks


def _stacked(samples: Sequence[Sample], across: Sequence[float], highest: int) -> tuple[list[dict[str, Any]], str]:
    """Memory by what it is used for as bands of a drawing 1000 wide and 140 high, and the heaps' line above them.

    `across` are the places of the samples, from 0 to 1; `highest` is the number of bytes at the top.
    """

    def points(values: Iterable[int]) -> list[str]:
        return [f"{round_(1000 * x)} {round_(140 - 138 * y / highest)}" for x, y in zip(across, values, strict=True)]

    bands = []
    below = [0] * len(samples)
    for place, category in enumerate(Category):
        if not any(sample.by_category[place] for sample in samples):
            continue
        above = [base + sample.by_category[place] for base, sample in zip(below, samples, strict=True)]
        outline = [*points(above), *reversed(points(below))]
        most = text.size(max(sample.by_category[place] for sample in samples))
        bands.append({"name": category.value, "place": place, "most": most, "path": f"M{'L'.join(outline)}Z"})
        below = above
    return bands, f"M{'L'.join(points(sample.reserved for sample in samples))}"


def _group_title(group: Sequence[StepSum]) -> str:
    longest = max(group, key=lambda step: step.duration_ns)
    first, last = group[0].step, group[-1].step
    steps = step_name(first) if len(group) == 1 else f"steps {first + 1:,} to {last + 1:,}"
    length = text.duration(longest.duration_ns) or "0 ns"
    return f"{steps}: {length}, {text.plural(longest.waits, 'wait')}, {longest.on_cpu} on the CPU"
