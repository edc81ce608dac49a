"""The memory of a run as every form of a report shows it: its peak, what held it, and how it grew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anymps.findings import growth_per_step, memory_limits
from anymps.record import Holding, Moment, Phase, Recording
from anymps.report import _text as text
from anymps.report._words import fact

MOST_LINES: Final = 3

CATEGORY_COLUMNS: Final = ("held by", "size", "share")
LINE_COLUMNS: Final = ("size", "buffers", "what", "operator", "where")


@dataclass(frozen=True)
class MemoryRows:
    """The peak: sentences, then `categories` and `lines` as the cells of `CATEGORY_COLUMNS` and `LINE_COLUMNS`."""

    sentences: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]
    lines: tuple[tuple[str, ...], ...]


def memory_rows(recording: Recording) -> MemoryRows | None:
    """What a report says about memory; None if the recording holds no allocation."""
    story = recording.memory_story
    peak = story.peak
    if peak is None:
        return None
    directory = fact(recording, "directory")
    sizes = sorted(peak.by_category.items(), key=lambda row: -row[1])
    return MemoryRows(
        sentences=tuple(_sentences(recording, peak)),
        categories=tuple(
            (category.value, text.size(size), text.percent(size, peak.allocated)) for category, size in sizes if size
        ),
        lines=tuple(_line(line, directory) for line in peak.by_site()[:MOST_LINES]),
    )


def _sentences(recording: Recording, peak: Moment) -> list[str]:
    story, limits = recording.memory_story, memory_limits(recording)
    when = f"step {peak.step}" + (f", {peak.phase.label}" if peak.phase is not Phase.OTHER else "")
    first = f"Peak {text.size(peak.allocated) or '0'} in tensors ({when})"
    if limits is not None:
        share = text.percent(peak.allocated, limits.working_set)
        first += f", {share or '0 %'} of the working set of {text.size(limits.working_set)}"
    sentences = [f"{first}; the allocator took up to {text.size(story.peak_reserved) or '0'} in heaps."]
    growth = growth_per_step(recording)
    if growth:
        sentences.append(f"Each step leaves {text.size(growth)} more than the one before.")
    if story.dropped:
        sentences.append("The run went on after the last buffer that was kept: all this is true up to there.")
    return sentences


def _line(line: Holding, directory: str) -> tuple[str, ...]:
    return (
        text.size(line.bytes),
        text.count(line.count),
        line.category.value,
        text.clean(line.operator) or "unknown",
        text.place(line.site, directory),
    )
