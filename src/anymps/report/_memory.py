"""The memory of a run as every form of a report shows it: its peak, what held it, how it grew, and a page's drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from anymps._text import step_name
from anymps.findings import Story
from anymps.record import Category, Holding, MemoryStory, Moment, Phase, Sample
from anymps.report import _text as text
from anymps.report._predicted import phase_words
from anymps.report.document import Block, Column, Drawing, Prose, Section, Table

MOST_LINES: Final = 3
_MUCH: Final = 0.1  # of the peak: as much rounding as needs a word; of the working set: as much memory as needs a table
_LITTLE: Final = 1 << 20  # bytes: less matters to nobody

_TICKS: Final = 5  # parts of an axis at most
_TICKS_APART: Final = 0.16  # of the width: a label on a phone
_POINTS: Final = 400  # of the curve

_CATEGORIES: Final = (Column("held by"), Column("size", "number"), Column("share", "number"))
_LINES: Final = (
    Column("size", "number"),
    Column("requested", "number", left_out=2),
    Column("buffers", "number", left_out=1),
    Column("what", wraps=True),
    Column("operator", "path"),
    Column("where", "path"),
)


def memory_section(story: Story, *, page: bool = False, brief: bool = False) -> Iterator[Section]:
    """The peak, what held it and how it grew; nothing if the recording holds no allocation.

    A `page` has a drawing. A `brief` one has no tables where the peak is a small part of the working set.
    """
    peak = story.memory.peak
    if peak is None:
        return
    directory = story.run.directory
    held = categories(peak)
    blocks: list[Block] = [Prose(tuple(_sentences(story, peak)))]
    limits = story.memory_limits
    if brief and limits is not None and peak.allocated < _MUCH * limits.working_set:
        yield Section("memory", "Memory", tuple(blocks))
        return
    if page and (drawing := memory_drawing(story.memory)) is not None:
        blocks.append(Drawing("memory_drawing", drawing))
    more = tuple(row for row in beyond(peak) if row[1])
    if held:
        caption = "What held the memory at its peak"
        blocks.append(Table("memory-categories", _CATEGORIES, held, caption=caption, beyond=more))
    lines = tuple(_line(line, directory) for line in peak.by_site()[:MOST_LINES])
    if lines:
        blocks.append(Table("memory-lines", _LINES, lines, caption="The lines that held most at the peak", head=3))
    yield Section("memory", "Memory", tuple(blocks))


def categories(peak: Moment) -> tuple[tuple[str, ...], ...]:
    """What fills the memory at the peak by use, the largest first: name, size and share."""
    sizes = sorted(peak.by_category.items(), key=lambda row: -row[1])
    return tuple((kind.value, text.size(size), text.percent(size, peak.allocated)) for kind, size in sizes if size)


def beyond(peak: Moment) -> tuple[tuple[str, ...], ...]:
    """What the categories hold without having asked for it, and what the heaps hold beyond them; empty cells are 0."""
    return (
        ("rounding, included above", text.size(peak.rounding), text.percent(peak.rounding, max(1, peak.allocated))),
        ("unused heaps: cache", text.size(peak.cached), ""),  # no share: it is no part of the peak
    )


def _sentences(story: Story, peak: Moment) -> list[str]:
    limits = story.memory_limits
    when = step_name(peak.step) + (f", {phase_words(story)[peak.phase]}" if peak.phase is not Phase.OTHER else "")
    first = f"Peak {text.size(peak.allocated) or '0'} in tensors ({when})"
    if limits is not None:
        share = text.percent(peak.allocated, limits.working_set)
        first += f", {share or '0 %'} of the working set of {text.size(limits.working_set)}"
    sentences = [f"{first}; the allocator took up to {text.size(story.memory.peak_reserved) or '0'} in heaps."]
    if peak.rounding > max(_MUCH * peak.allocated, _LITTLE):
        sentences.append(
            f"{text.size(peak.rounding)} of the peak was not requested: the allocator rounds sizes up, and gives a "
            "buffer of its cache as a whole."
        )
    growth = story.growth_per_step
    if growth:
        sentences.append(f"Each step leaves {text.size(growth)} more than the one before.")
    if story.memory.dropped:
        sentences.append("The run continued after the last recorded buffer; this covers only the part before it.")
    return sentences


def _line(line: Holding, directory: str) -> tuple[str, ...]:
    return (
        text.size(line.bytes),
        text.size(line.requested),
        text.count(line.count),
        line.category.value,
        text.clean(line.operator) or "unknown",
        text.place(line.site, directory),
    )


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
            "at": round(100 * across[at], 3),
            "top": round(20 + 140 - 138 * peak / highest, 3),
            "name": f"peak {text.size(peak)}, {step}",
            "anchor": "end" if across[at] > 0.5 else "start",
            "shift": -8 if across[at] > 0.5 else 8,
        },
    }


def _step_ticks(samples: Sequence[Sample], across: Sequence[float]) -> list[dict[str, Any]]:
    first: dict[int, float] = {}
    for sample, at in zip(samples, across, strict=True):
        first.setdefault(sample.step, at)
    every = -(-len(first) // _TICKS)
    ticks: list[dict[str, Any]] = []
    last = -1.0
    for step, at in list(first.items())[::every]:
        if at - last >= _TICKS_APART:
            ticks.append({"at": round(100 * at, 3), "label": step_name(step)})
            last = at
    return ticks


def _stacked(samples: Sequence[Sample], across: Sequence[float], highest: int) -> tuple[list[dict[str, Any]], str]:
    """Memory by what it is used for as bands of a drawing 1000 wide and 140 high, and the heaps' line above them.

    `across` are the places of the samples, from 0 to 1; `highest` is the number of bytes at the top.
    """

    def points(values: Iterable[int]) -> list[str]:
        return [
            f"{round(1000 * x, 3)} {round(140 - 138 * y / highest, 3)}" for x, y in zip(across, values, strict=True)
        ]

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
