"""The allocations of a run as a trace: replayed on the allocator of another Mac, or stretched to another batch size."""

from __future__ import annotations

import array
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum
from typing import Final

from anymps.device import native
from anymps.mac import Mac
from anymps.record import Allocation, MemoryStory
from anymps.rules.variables import HIGH_WATERMARK, LOW_WATERMARK, WATERMARKS

HIGH, LOW = WATERMARKS[HIGH_WATERMARK], WATERMARKS[LOW_WATERMARK]
"""The allocator's ratios to the working set, where nothing is set."""

COMFORT: Final = 0.9
"""Share of the working set up to which a run fits comfortably: macOS and other programs want memory, too (our choice).
"""


LARGEST_BATCH: Final = 1 << 16
"""Beyond this batch size nobody looks for a larger one."""


class Kind(str, Enum):
    """What a model reads, by which its logs differ."""

    TOKENS = "tokens"
    """It looks up embeddings: a language model."""
    OTHER = "other"
    """Pictures, sound, tables."""


@dataclass(frozen=True)
class OtherAllocations:
    """What Metal counts for the process beside PyTorch's heaps: MPSGraph's graphs and their buffers first.

    A share of all memory in use, and at least so many bytes; how many of the public logs stay below it. They have
    torch's out-of-memory error, which names both parts, and are listed in docs/evidence.md.
    """

    kind: Kind
    share: float
    least: int
    below: int
    logs: int

    def beside(self, heaps: int) -> int:
        """Bytes beside heaps of so many bytes."""
        return max(self.least, round(heaps * self.share / (1 - self.share)))


_TOKENS: Final = OtherAllocations(Kind.TOKENS, 0.37, 0, 5, 7)
_UP_TO_2_11: Final = {Kind.TOKENS: _TOKENS, Kind.OTHER: OtherAllocations(Kind.OTHER, 0.18, 0, 10, 12)}
# From torch 2.12 on the logs are of trainings that never change their sizes: up to 86 MiB. What a language model takes
# whose sizes change, only the older logs tell.
_FROM_2_12: Final = {Kind.TOKENS: _TOKENS, Kind.OTHER: OtherAllocations(Kind.OTHER, 0.0, 256 << 20, 3, 3)}


def other_allocations(kind: Kind, torch_minor: int) -> OtherAllocations:
    """What to expect of a kind of model on torch 2.`torch_minor`."""
    return (_UP_TO_2_11 if torch_minor <= 11 else _FROM_2_12)[kind]


class Verdict(str, Enum):
    """How a run fits a Mac."""

    FITS = "fits"
    """With other allocations as large as public logs let expect (`other_allocations`)."""
    TIGHT = "tight"
    """Only without them, or above nine tenths of the working set."""
    PAGES = "pages"
    """Above the recommended working set: macOS pages, steps are ten to twenty times slower."""
    FAILS = "fails"

    @property
    def has_room(self) -> bool:
        """Whether the working set suffices, so that a step has a time."""
        return self in (Verdict.FITS, Verdict.TIGHT)


@dataclass(frozen=True)
class MacOutcome:
    """What a Mac's allocator makes of a trace; bytes."""

    mac: Mac
    verdict: Verdict
    peak_allocated: int
    peak_reserved: int
    margin: int
    """Of `Mac.room`, above the peak of the heaps; negative where it does not suffice."""
    others: int = 0
    """What other allocations are expected to take beside the heaps."""
    message: str = ""
    """The error that torch raises on that Mac."""
    failing: Allocation | None = None

    @property
    def with_others(self) -> Verdict:
        """What happens if other allocations take what is expected of them: it fits, pages or fails."""
        whole = self.peak_reserved + self.others
        if self.verdict is Verdict.FAILS or whole > HIGH * self.mac.recommended_max_memory:
            return Verdict.FAILS
        return Verdict.PAGES if whole > self.mac.room else Verdict.FITS

    @property
    def hangs_on_others(self) -> bool:
        """Whether other allocations decide between this verdict and a worse one."""
        return self.verdict is Verdict.TIGHT or (self.verdict is Verdict.PAGES and self.with_others is Verdict.FAILS)


@dataclass(frozen=True)
class Trace:
    """Births and deaths in their order: a positive number is an allocation of so many bytes, -k frees the k-th one."""

    events: tuple[int, ...]
    births: tuple[Allocation, ...]
    kind: Kind = Kind.OTHER

    @classmethod
    def of(cls, story: MemoryStory, kind: Kind = Kind.OTHER) -> Trace:
        """The trace of a recorded run; buffers from before the recording come first."""
        order: list[tuple[int, int, Allocation]] = [(one.born, 1, one) for one in story.allocations]
        order += [(one.died, -1, one) for one in story.allocations if one.died is not None]
        order.sort(key=lambda event: event[:2])
        places: dict[int, int] = {}
        births = []
        events = []
        for _, sign, one in order:
            if sign > 0:
                births.append(one)
                places[one.id] = len(births)
                events.append(one.requested)
            else:
                events.append(-places[one.id])
        return cls(tuple(events), tuple(births), kind)

    def replay(self, mac: Mac, torch_minor: int) -> MacOutcome:
        """Give the trace to the allocator of torch 2.`torch_minor` on a Mac."""
        packed = array.array("q", self.events).tobytes()
        allocated, reserved, failed, message = native().replay(
            packed, torch_minor, mac.recommended_max_memory, mac.max_buffer_length, HIGH, LOW
        )
        margin = mac.room - reserved
        beside = other_allocations(self.kind, torch_minor).beside(reserved)
        if failed >= 0:
            place = sum(1 for event in self.events[: failed + 1] if event >= 0) - 1
            return MacOutcome(mac, Verdict.FAILS, allocated, reserved, margin, beside, message, self.births[place])
        if margin < 0:
            verdict = Verdict.PAGES
        elif reserved > COMFORT * mac.room or beside > margin:
            verdict = Verdict.TIGHT
        else:
            verdict = Verdict.FITS
        return MacOutcome(mac, verdict, allocated, reserved, margin, beside)


@dataclass(frozen=True)
class Stretch:
    """How every allocation of a run grows with the batch, from two runs that differ in nothing else."""

    small: Trace
    batch: int
    slopes: tuple[float, ...]
    """Bytes a sample, by allocation."""

    @classmethod
    def between(cls, small: Trace, batch: int, large: Trace, larger: int) -> Stretch | None:
        """None if the two runs took different courses, so that nothing can be said about a third."""
        if larger <= batch or len(small.events) != len(large.events):
            return None
        for mine, other in zip(small.events, large.events, strict=True):
            if (mine < 0 or other < 0) and mine != other:
                return None
        step = larger - batch
        slopes = (
            (other.requested - one.requested) / step for one, other in zip(small.births, large.births, strict=True)
        )
        return cls(small, batch, tuple(slopes))

    def at(self, batch: int) -> Trace:
        """The trace of another batch size."""
        sizes = [
            max(0, round(one.requested + slope * (batch - self.batch)))
            for one, slope in zip(self.small.births, self.slopes, strict=True)
        ]
        born = iter(sizes)
        return Trace(
            tuple(next(born) if event >= 0 else event for event in self.small.events),
            self.small.births,
            self.small.kind,
        )

    def largest(self, mac: Mac, torch_minor: int) -> int:
        """The largest batch that fits on a Mac, others and room to spare included; 0 if none does."""
        batches = range(1, LARGEST_BATCH + 1)
        return bisect_left(
            batches, True, key=lambda batch: self.at(batch).replay(mac, torch_minor).verdict is not Verdict.FITS
        )
