"""The limits of memory that a recording ran under, in bytes, and memory in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anymps.findings._endings import ending
from anymps.findings._model import at
from anymps.mac import Mac
from anymps.record import NOWHERE, Category, Holding, Moment, Recording, Site
from anymps.rules.texts import format_size
from anymps.rules.variables import HIGH_WATERMARK, WATERMARKS, explain_watermark, watermark_ratio

_REFUSED: Final = re.compile(r"invalid (?:high|low) watermark ratio .*")


@dataclass(frozen=True)
class MemoryLimits:
    """Of one Mac and its environment, in bytes.

    `working_set` is what Metal recommends to stay below, `largest_buffer` what one buffer may have, `high_watermark`
    where the allocator stops (None: it does not).
    """

    mac: Mac
    working_set: int
    largest_buffer: int
    high_watermark: int | None


def memory_limits(recording: Recording) -> MemoryLimits | None:
    """The limits of the Mac that the recording names, None if it names none that is known."""
    mac = recording.run.known_mac
    if mac is None:
        return None
    ratio = watermark_ratio(HIGH_WATERMARK, recording.run.environment)
    working_set = mac.recommended_max_memory
    return MemoryLimits(
        mac=mac,
        working_set=working_set,
        largest_buffer=mac.max_buffer_length,
        high_watermark=int(ratio * working_set) if 0 < ratio <= 2 else None,
    )


def by_category(moment: Moment) -> list[tuple[Category, int]]:
    """What a moment holds, the largest category first; empty ones are left out."""
    return sorted(
        ((category, size) for category, size in moment.by_category.items() if size), key=lambda row: (-row[1], row[0])
    )


def category_words(moment: Moment) -> str:
    """`activations 4.00 GiB, parameters 1.00 GiB`."""
    return ", ".join(f"{category.value} {format_size(size)}" for category, size in by_category(moment))


def line_words(lines: Sequence[Holding]) -> str:
    """``2.00 GiB by `aten::mm` at train.py:12``, and so on."""
    return ", ".join(
        f"{format_size(line.bytes)} by `{line.operator or 'unknown'}` at "
        f"{at(line.site) if line.site.known else 'an unknown line'}"
        for line in lines
    )


def ended_by_watermark(recording: Recording) -> bool:
    """Whether torch refused the ratios at the first allocation, and nothing caught it."""
    variables = recording.run.environment
    wrong = any(explain_watermark(name, variables)[1] for name in WATERMARKS if name in variables)
    return wrong and _REFUSED.fullmatch(ending(recording).message) is not None


def first_allocation(recording: Recording) -> Site:
    """Where the backend reads its variables: the first allocation of the run, which may have raised."""
    if ended_by_watermark(recording):
        return ending(recording).site
    story = recording.memory_story
    return next((one.site for one in story.allocations if one.born and one.site.known), NOWHERE)
