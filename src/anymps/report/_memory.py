"""The memory of a run as every form of a report shows it: its peak, what held it, and how it grew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from anymps._text import step_name
from anymps.findings import Story
from anymps.record import Holding, Moment, Phase
from anymps.report import _text as text
from anymps.report._predicted import phase_words
from anymps.report.document import Block, Column, Drawing, Prose, Section, Table

MOST_LINES: Final = 3
_MUCH: Final = 0.1  # of the peak: as much rounding as needs a word; of the working set: as much memory as needs a table
_LITTLE: Final = 1 << 20  # bytes: less matters to nobody

_CATEGORIES: Final = (Column("held by"), Column("size", "number"), Column("share", "number"))
_LINES: Final = (
    Column("size", "number"),
    Column("requested", "number", left_out=2),
    Column("buffers", "number", left_out=1),
    Column("what", wraps=True),
    Column("operator", "path"),
    Column("where", "path"),
)


def memory_section(story: Story, drawing: Mapping[str, Any] | None = None, *, brief: bool = False) -> Iterator[Section]:
    """The peak, what held it and how it grew; nothing if the recording holds no allocation.

    A `brief` one has no tables where the peak is a small part of the working set.
    """
    peak = story.memory.peak
    if peak is None:
        return
    directory = story.run.directory
    sizes = sorted(peak.by_category.items(), key=lambda row: -row[1])
    held = tuple((kind.value, text.size(size), text.percent(size, peak.allocated)) for kind, size in sizes if size)
    blocks: list[Block] = [Prose(tuple(_sentences(story, peak)))]
    limits = story.memory_limits
    if brief and limits is not None and peak.allocated < _MUCH * limits.working_set:
        yield Section("memory", "Memory", tuple(blocks))
        return
    if drawing is not None:
        blocks.append(Drawing("memory_drawing", drawing))
    more = tuple(row for row in beyond(peak) if row[1])
    if held:
        caption = "What held the memory at its peak"
        blocks.append(Table("memory-categories", _CATEGORIES, held, caption=caption, beyond=more))
    lines = tuple(_line(line, directory) for line in peak.by_site()[:MOST_LINES])
    if lines:
        blocks.append(Table("memory-lines", _LINES, lines, caption="The lines that held most at the peak", head=3))
    yield Section("memory", "Memory", tuple(blocks))


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
