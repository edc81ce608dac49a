"""What to change first if a run does not fit, in the order that guides to training on Macs recommend.

Cheapest and safest first: PyTorch's and Hugging Face's guides to less memory begin with the batch and end with the
variables that only move the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Final

from anymps.plan._measure import Measured
from anymps.plan._trace import MacOutcome, Verdict
from anymps.record import Category, MemoryStory, Phase, Site

WORTH: Final = 0.1
"""Share of the peak that a change must be able to save to be worth a line (our choice)."""

LEAST_GROWTH: Final = 1 << 20
"""Bytes a step below which growth is not called one: 1 GiB in a thousand steps."""

_MOST_PLACES = 3
_OF_THE_LOOP = (Phase.FORWARD, Phase.OTHER, Phase.LOSS_READ)


class FixKind(str, Enum):
    """One change, in the order in which to try them."""

    BATCH = "batch"
    SEQUENCE = "sequence"
    KEPT = "kept"
    CHECKPOINT = "checkpoint"
    PRECISION = "precision"
    WATERMARK = "watermark"


@dataclass(frozen=True)
class Fix:
    """One change as it applies to a script.

    `applies` is None where nothing here tells. `share` is the part of the peak that the change works on. `peak` is what
    the heaps would need with it, in bytes, where that is known. `growth` (bytes a step) and `sites` tell what is kept.
    """

    kind: FixKind
    applies: bool | None
    begin: bool = False
    """Whether to begin with this one: the first in the order that applies, or what is kept by accident."""
    share: float = 0.0
    peak: int | None = None
    growth: int = 0
    sites: tuple[Site, ...] = ()


def first_fixes(measured: Measured, halved: int | None, outcomes: Sequence[MacOutcome]) -> tuple[Fix, ...]:
    """All changes in their order, with what is known of each; `halved` is the heaps' peak with half the batch (bytes).

    None of them if the run fits every Mac of `outcomes` comfortably and leaves nothing behind: what grows ends any run.
    """
    peak = measured.peak
    growth = growth_a_step(measured.story, measured.steps)
    if all(outcome.verdict is Verdict.FITS for outcome in outcomes) and not growth:
        return ()
    part = {category: size / max(1, peak.allocated) for category, size in peak.by_category.items()}
    kept = part[Category.ACTIVATIONS]
    grows_with_data = kept + part[Category.BATCHES] + part[Category.TEMPORARIES]
    fixes = [
        _batch(measured, halved, grows_with_data),
        Fix(FixKind.SEQUENCE, _sequence(measured.sequence, grows_with_data), share=grows_with_data),
        Fix(FixKind.KEPT, growth > 0, growth=growth, sites=_lines_that_keep_memory(measured.story) if growth else ()),
        Fix(FixKind.CHECKPOINT, kept >= WORTH, share=kept),
        Fix(FixKind.PRECISION, kept >= WORTH or None, share=kept),
        Fix(FixKind.WATERMARK, any(outcome.verdict is Verdict.FAILS for outcome in outcomes)),
    ]
    # What is left behind by every step ends any run, however small its batch.
    first = next((fix for fix in fixes if fix.kind is FixKind.KEPT and fix.applies), None)
    first = first or next(fix for fix in fixes if fix.applies is not False)
    return tuple(replace(fix, begin=fix is first) for fix in fixes)


def growth_a_step(story: MemoryStory, complete: int) -> int:
    """Bytes that each step leaves beyond the one before, at least; the first, which makes the optimizer's state, apart.

    0 where fewer than three steps are `complete`, or where some step left no more. What a step that was cut short
    holds is in use.
    """
    steps = story.steps()[:complete]
    if len(steps) < 3:
        return 0
    growth = min(later.after - earlier.after for earlier, later in pairwise(steps[1:]))
    return growth if growth >= LEAST_GROWTH else 0


def _batch(measured: Measured, halved: int | None, share: float) -> Fix:
    applies: bool | None = None
    if measured.batch == 1:
        applies, halved = False, None
    elif halved is not None:
        applies = halved <= (1 - WORTH) * measured.story.peak_reserved
    elif share < WORTH:
        applies = False
    return Fix(FixKind.BATCH, applies, share=share, peak=halved)


def _sequence(sequence: int | None, share: float) -> bool | None:
    if share < WORTH or sequence == 1:
        return False
    return True if sequence is not None else None


def _lines_that_keep_memory(story: MemoryStory) -> tuple[Site, ...]:
    """The lines to look at where memory grows, at most three.

    What keeps a graph is a result outside of any module that outlives its step: a sum of losses, an output in a list.
    The last one made is named first; where there is none, the lines whose buffers are kept.
    """
    steps = {one.step for one in story.allocations}
    later = [one for one in story.allocations if 0 < one.step and one.site.known and one.phase in _OF_THE_LOOP]
    results = [one for one in later if not one.module and (one.died_step is None or one.died_step > one.step)]
    left = [one for one in later if one.died is None and one.step < max(steps)]
    results.sort(key=lambda one: -one.born)
    left.sort(key=lambda one: -one.bytes)
    lines: dict[tuple[str, int], Site] = {}
    for one in (*results, *left):
        lines.setdefault((one.site.file, one.site.line), one.site)
    return tuple(lines.values())[:_MOST_PLACES]
