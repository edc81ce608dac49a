"""A comparison of two runs of one script: where they first diverge, what else differs, and their losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from anymps.compare._align import Pair, aligned
from anymps.compare._divergences import Divergence, Judge, Rounding, Shared
from anymps.compare._trace import NOWHERE, Ending, Lists, Read, Trace, TracedCall
from anymps.record import Site


@dataclass(frozen=True)
class Side:
    """One of the runs: its name, its facts, how it ended, and how many of its calls PyTorch's own kernels computed."""

    name: str
    facts: dict[str, str]
    ending: Ending
    calls: int
    traced_steps: tuple[int, ...]
    kernel_calls: int = 0

    @property
    def kernels_torch(self) -> str:
        """The release of the Metal kernels that it ran on, such as 2.15.0; empty without them."""
        return self.facts.get("kernels_torch", "")

    @property
    def is_used(self) -> bool:
        """Whether anything ran on the device, even if the run was cut short."""
        return bool(self.facts.get("used"))


@dataclass(frozen=True)
class LossPair:
    """The same loss in both runs."""

    step: int
    left: float
    right: float

    @property
    def difference(self) -> float:
        """The difference, relative to the larger."""
        if self.left == self.right or (math.isnan(self.left) and math.isnan(self.right)):
            return 0.0
        size = max(abs(self.left), abs(self.right))
        difference = abs(self.left - self.right)
        return difference / size if math.isfinite(difference) else math.inf


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    `divergences` are the calls with a cause of their own, in program order; `compared` counts the pairs of calls.
    `losses` are what backward was called on, or, without backward, the values that one line reads. `loss_site` is their
    line. `by_kernels` counts the pairs that PyTorch's own kernels computed. `decided` is the last value read before the
    paths through the program diverge, if it differed.
    """

    script: str
    sides: tuple[Side, Side]
    divergences: tuple[Divergence, ...]
    rounding: Rounding
    compared: int
    losses: tuple[LossPair, ...]
    loss_site: Site
    decided: tuple[Read, Read] | None
    lists: dict[str, Lists]
    by_kernels: Shared = field(default_factory=Shared)

    @property
    def has_releases(self) -> bool:
        """Whether the runs are on the kernels of two releases."""
        return len({side.kernels_torch for side in self.sides} - {""}) > 1

    @property
    def first(self) -> Divergence | None:
        """Where the runs first diverge."""
        return self.divergences[0] if self.divergences else None

    @property
    def is_used(self) -> bool:
        """Whether anything ran on the devices that were asked for."""
        return all(side.is_used or side.name == "cpu" for side in self.sides)

    @property
    def agrees(self) -> bool:
        """Whether both ended without an error and without diverging."""
        endings = [side.ending for side in self.sides]
        return not self.divergences and not any(ending.error for ending in endings) and self.losses_agree

    @property
    def losses_agree(self) -> bool:
        """Whether no loss differs by more than PyTorch's tests of mps allow for float32."""
        return self.largest_difference <= LOSS_LIMIT

    @property
    def largest_difference(self) -> float:
        """The largest relative difference between two losses."""
        return max((pair.difference for pair in self.losses), default=0.0)


LOSS_LIMIT = 2 * 3e-5
"""Twice the relative tolerance of float32 in PyTorch's own tests of mps (`TestConsistency._compute_tolerances`)."""


def compare_traces(script: str, names: tuple[str, str], left: Trace, right: Trace) -> Comparison:
    """Compare two traces of one script; `names` are the names of the runs."""
    judge = Judge(left, right)
    ends_early = any(trace.ending.error or trace.ending.is_cut for trace in (left, right))
    pairs = list(_by_step(left, right))
    for pair, after in zip_longest(pairs, pairs[1:]):
        if after is None and ends_early and not (pair.left and pair.right):
            break  # calls that the other run did not reach
        judge.take(pair, after)
    losses, site = _losses(left, right)
    branch = next((found for found in judge.divergences if found.cause.value == "branch"), None)
    return Comparison(
        script,
        (_side(names[0], left), _side(names[1], right)),
        judge.divergences,
        judge.rounding,
        judge.compared,
        losses,
        site,
        _decided(left, right, branch) if branch is not None else None,
        {**left.lists, **right.lists},
        judge.by_kernels,
    )


def _side(name: str, trace: Trace) -> Side:
    by_kernels = sum(call.by_kernel for call in trace.calls)
    return Side(name, trace.facts, trace.ending, len(trace.calls), tuple(trace.traced_steps), by_kernels)


def _by_step(left: Trace, right: Trace) -> Iterator[Pair]:
    """The calls of the steps that both traced, step by step: runs that diverge in one step match again in the next."""
    steps = sorted({call.step for call in left.calls} | {call.step for call in right.calls})
    last = [trace.calls[-1].step if trace.calls else -1 for trace in (left, right)]
    sides = [_grouped(trace) for trace in (left, right)]
    for step in steps:
        if step > min(last):
            break  # one run has ended, or its trace has
        yield from aligned(sides[0].get(step, []), sides[1].get(step, []))


def _grouped(trace: Trace) -> dict[int, list[TracedCall]]:
    groups: dict[int, list[TracedCall]] = {}
    for call in trace.calls:
        if call.name == "_to_copy" and (call.autocast or call.in_backward):
            continue  # the call that it casts for, and its dtype, say more
        groups.setdefault(call.step, []).append(call)
    return groups


def _losses(left: Trace, right: Trace) -> tuple[tuple[LossPair, ...], Site]:
    """Pair what backward was called on; without backward, the values of the line that reads most often."""
    if left.losses and right.losses:
        pairs = zip(left.losses, right.losses, strict=False)
        has_steps = left.ending.steps > 0
        rows = enumerate(pairs)
        return tuple(
            LossPair(one.step if has_steps else number, one.value, other.value) for number, (one, other) in rows
        ), left.losses[0].site
    counts: dict[Site, int] = {}
    for read in left.reads:
        counts[read.site] = counts.get(read.site, 0) + 1
    if not counts:
        return (), NOWHERE
    site = max(counts, key=lambda it: counts[it])
    one, other = ([read for read in trace.reads if _line(read) == (site.file, site.line)] for trace in (left, right))
    both = enumerate(zip(one, other, strict=False))
    return tuple(LossPair(number, first.value, second.value) for number, (first, second) in both), site


def _line(read: Read) -> tuple[str, int]:
    return read.site.file, read.site.line


def _decided(left: Trace, right: Trace, branch: Divergence) -> tuple[Read, Read] | None:
    """The last value that both read before their paths diverged, if it differed."""
    limits = [calls[0].number if calls else None for calls in (branch.left, branch.right)]
    found: tuple[Read, Read] | None = None
    for one, other in zip(left.reads, right.reads, strict=False):
        if _line(one) != _line(other):
            break
        if any(limit is not None and it.calls > limit for limit, it in zip(limits, (one, other), strict=True)):
            break
        found = (one, other) if one.value != other.value else None
    return found
