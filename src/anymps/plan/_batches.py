"""Batch against samples a second: the calls of a step at other batch sizes, and what a Mac would take for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from anymps.cost import Happening, OperatorCall, WalkedStep
from anymps.forecast import StepWork
from anymps.mac import Mac
from anymps.plan._times import walked

KNEE: Final = 0.9
"""Share of the most samples a second from which on a larger batch gives next to nothing more (our choice)."""

_MOST: Final = 6  # 64 times the script's own batch is the largest that is looked at
_NUMBER: Final = re.compile(r"(?<=[\[ ])\d+")  # of a shape, not of a dtype


@dataclass(frozen=True)
class Growth:
    """The happenings of a step by the batch, from those with `batch` and those with `larger` samples."""

    small: StepWork
    batch: int
    large: StepWork
    larger: int

    @classmethod
    def between(cls, small: StepWork | None, batch: int, large: StepWork | None, larger: int) -> Growth | None:
        """None if the two steps do not make the same calls, so that nothing can be said about a third."""
        if small is None or large is None or larger <= batch or len(small.happenings) != len(large.happenings):
            return None
        if small.batches != large.batches:
            return None
        found = cls(small, batch, large, larger)
        alike = (_kind(one) == _kind(other) for one, other in zip(small.happenings, large.happenings, strict=True))
        return found if all(alike) and found.at(batch) is not None else None

    def at(self, batch: int) -> StepWork | None:
        """The step with another batch size; None where a size of it would be none, as a third of a sample is."""
        calls: dict[tuple[int, int], OperatorCall] = {}
        found: list[Happening] = []
        for one, other in zip(self.small.happenings, self.large.happenings, strict=True):
            call = one.call
            if one.call is not None and other.call is not None:
                key = id(one.call), id(other.call)
                known = calls.get(key) or self._call(one.call, other.call, batch)
                if known is None:
                    return None
                call = calls[key] = known  # the same object for the same call: each is looked up once
            moved = self._number(one.moved, other.moved, batch)
            found.append(one._replace(call=call, moved=max(0, round(moved))))
        return replace(self.small, happenings=tuple(found))

    def _call(self, one: OperatorCall, other: OperatorCall, batch: int) -> OperatorCall | None:
        inputs = self._texts(one.inputs, other.inputs, batch)
        outputs = self._texts(one.outputs, other.outputs, batch)
        return None if inputs is None or outputs is None else replace(one, inputs=inputs, outputs=outputs)

    def _texts(self, small: Sequence[str], large: Sequence[str], batch: int) -> tuple[str, ...] | None:
        if small == large:
            return tuple(small)
        found = []
        for one, other in zip(small, large, strict=True):
            if _NUMBER.sub("", one) != _NUMBER.sub("", other):
                return None
            sizes = []
            for first, second in zip(map(int, _NUMBER.findall(one)), map(int, _NUMBER.findall(other)), strict=True):
                size = self._number(first, second, batch)
                if not self._grows(first, second) or size != round(size) or (size < 1 and first):
                    return None
                sizes.append(str(round(size)))
            left = iter(sizes)
            found.append(_NUMBER.sub(lambda _, left=left: next(left), one))  # type: ignore[misc]
        return tuple(found)

    def _grows(self, one: int, other: int) -> bool:
        """Whether a size grows by so much a sample from nothing on; else one of the two steps was of another batch."""
        sample = (other - one) / (self.larger - self.batch)
        return sample >= 0 and one - sample * self.batch >= -sample

    def _number(self, one: int, other: int, batch: int) -> float:
        return one + (other - one) * (batch - self.batch) / (self.larger - self.batch)


def _kind(happening: Happening) -> tuple[object, ...]:
    call = happening.call
    lengths = (call.operator, len(call.inputs), len(call.outputs)) if call is not None else ()
    return happening.kind, happening.waits, happening.part, lengths


@dataclass(frozen=True)
class BatchTime:
    """A step with a batch of `batch` samples, and how many samples that is a second."""

    batch: int
    time: WalkedStep
    samples: float

    @property
    def low(self) -> float:
        """The lower end of the 80 % interval of the samples a second."""
        return self.samples * self.time.seconds / self.time.high

    @property
    def high(self) -> float:
        """The upper end."""
        return self.samples * self.time.seconds / self.time.low


@dataclass(frozen=True)
class Batches:
    """The batch sizes that fit a Mac, from a quarter of the plan's `own` up to the largest, each with its time."""

    mac: Mac
    own: int
    rows: tuple[BatchTime, ...]
    largest: int
    """The largest that fits; `rows` may end before it."""
    asked: bool = False
    """Whether `own` is that of an option, and not the script's."""

    @property
    def knee(self) -> BatchTime | None:
        """The smallest batch that reaches nine tenths of the most samples a second; None if only the largest does."""
        most = max(row.samples for row in self.rows)
        found = next(row for row in self.rows if row.samples >= KNEE * most)
        return found if found is not self.rows[-1] else None


def batch_times(
    growth: Growth, own: int, macs: Sequence[Mac], largest: Callable[[Mac], int], torch: str, *, asked: bool = False
) -> tuple[Batches, ...]:
    """The batch sizes on each of the Macs; none for a Mac on which fewer than two fit or have a time."""
    works: dict[int, StepWork | None] = {}
    found = []
    for mac in macs:
        most = largest(mac)
        rows = []
        for batch in _sizes(own, most):
            if batch not in works:
                works[batch] = growth.at(batch)
            row = _row(works[batch], batch, mac, torch)
            if row is not None:
                rows.append(row)
        if len(rows) > 1:
            found.append(Batches(mac, own, tuple(rows), most, asked))
    return tuple(found)


def _sizes(own: int, largest: int) -> list[int]:
    """Halves and doubles of the script's own batch, and the largest that fits."""
    halves = [own // part for part in (4, 2) if own % part == 0]
    doubles = [own << power for power in range(_MOST + 1)]
    sizes = [size for size in (*halves, *doubles) if size <= largest]
    if sizes and sizes[-1] < largest < own << _MOST:
        sizes.append(largest)
    return sizes


def _row(work: StepWork | None, batch: int, mac: Mac, torch: str) -> BatchTime | None:
    time = walked(work, mac, torch)
    if work is None or time is None:
        return None
    return BatchTime(batch, time, batch * max(1, work.batches) / time.seconds)
