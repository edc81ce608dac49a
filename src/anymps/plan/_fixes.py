"""What to change first where a run does not fit: the order that the guides to training on Macs teach, and what of it applies.

Cheapest and safest first: PyTorch's and Hugging Face's guides to less memory begin with the batch and end with the
variables that only move the limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Final

from anymps.plan._measure import Measured
from anymps.plan._trace import Outcome, Verdict
from anymps.record import Allocation, Category, MemoryStory, Phase, Site

WORTH: Final = 0.1
"""Share of the peak that a change must be able to save to be worth a line (our choice)."""

LEAST_GROWTH: Final = 1 << 20
"""Bytes a step below which growth is not called one: 1 GiB in a thousand steps."""

_MOST_PLACES = 3


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


def first_fixes(measured: Measured, halved: int | None, outcomes: Sequence[Outcome]) -> tuple[Fix, ...]:
    """All changes in their order, with what is known of each. `halved` is the heaps' peak with half the batch, in bytes.

    None of them if the run fits every Mac of `outcomes` comfortably.
    """
    peak = measured.story.peak
    if peak is None or all(outcome.verdict is Verdict.FITS for outcome in outcomes):
        return ()
    part = {category: size / max(1, peak.allocated) for category, size in peak.by_category.items()}
    kept = part[Category.ACTIVATIONS]
    grows_with_data = kept + part[Category.BATCHES] + part[Category.TEMPORARIES]
    growth = growth_a_step(measured.story)
    fixes = [
        _batch(measured, halved, grows_with_data),
        Fix(FixKind.SEQUENCE, _sequence(measured.sequence, grows_with_data), share=grows_with_data),
        Fix(FixKind.KEPT, growth > 0, growth=growth, sites=_keepers(measured.story) if growth else ()),
        Fix(FixKind.CHECKPOINT, kept >= WORTH, share=kept),
        Fix(FixKind.PRECISION, kept >= WORTH or None, share=kept),
        Fix(FixKind.WATERMARK, any(outcome.verdict is Verdict.FAILS for outcome in outcomes)),
    ]
    # What is left behind by every step ends any run, however small its batch.
    first = next((fix for fix in fixes if fix.kind is FixKind.KEPT and fix.applies), None)
    first = first or next(fix for fix in fixes if fix.applies is not False)
    return tuple(replace(fix, begin=fix is first) for fix in fixes)


def growth_a_step(story: MemoryStory) -> int:
    """Bytes that each step leaves beyond the one before, at least; the first, which makes the optimizer's state, apart.

    0 where fewer than three steps were measured, or where some step left no more.
    """
    steps = story.steps()
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


def _keepers(story: MemoryStory) -> tuple[Site, ...]:
    """The lines that most likely keep what grows.

    A graph is kept by its last result: the line outside of modules whose buffer was made last in a step and outlives
    it. Before those come the lines whose results are kept in a list, which hold most.
    """
    steps = {one.step for one in story.allocations}
    kept = [one for one in story.allocations if _left_behind(one, steps)]
    by_line: dict[Site, list[Allocation]] = defaultdict(list)
    for one in kept:
        if one.site.known:
            by_line[one.site].append(one)
    every = max((len({one.step for one in group}) for group in by_line.values()), default=0)
    outside = [
        site for site, group in by_line.items() if not group[0].module and len({it.step for it in group}) == every
    ]
    outside.sort(key=lambda site: -max(one.born for one in by_line[site]))
    rest = sorted(by_line, key=lambda site: -sum(one.bytes for one in by_line[site]))
    return tuple(dict.fromkeys([*outside, *rest]))[:_MOST_PLACES]


def _left_behind(one: Allocation, steps: set[int]) -> bool:
    """Whether a step after the first left this buffer for good, in none of the ways that every training does."""
    return (
        one.died is None
        and 0 < one.step < max(steps)
        and one.category in (Category.HELD, Category.ACTIVATIONS, Category.BATCHES)
        and one.phase is not Phase.OPTIMIZER
    )
