"""The time of the program's own code before each call: from several steps, by place in the program.

A place is a line and operator with those before it. A place may come often in a step, and steps may differ: the gaps of
a place are sorted in each step, and the shortest gap of each rank counts, as with `timeit`. Longer ones were delayed by
other programs; a pass in ten that really takes longer stays. A short gap in which the thread lost its core counts only
if it lost it in all steps, because its own time is then less certain. A long one counts: it may have lost its core in
each step, in some unnoticed (`core_clock.h`). The loss is sometimes measured wrongly, so the quickest of several gaps
that lost much of their time does not count.

If the core's speed was measured beside each step (`_looks.py`), times of different steps are comparable. They are too
short as often as too long, because the speed also changes between a gap and a look. So the median counts, of the gaps
in which the thread lost nothing if there are several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from anymps.cost import Happening

_WHOLE: Final = 0.9  # the share of a time in which the thread ran from which on it counts as uninterrupted
_KNOWN: Final = 1e-3  # seconds from which on it is known what was run of them: losses are placed to a millisecond
_FEW: Final = 3  # uninterrupted times from which on the interrupted ones do not count
_SEVERAL: Final = 4  # interrupted gaps of a place from which on the quickest one is passed over


class Seen(NamedTuple):
    """A step as it was seen: what happens, each with its place in the program.

    `lost` has by the happening's number the seconds in which the thread had no core, in the gap and in the work: they
    are in neither.
    """

    happenings: list[Happening]
    places: list[Hashable]
    lost: Mapping[int, tuple[float, float]] = MappingProxyType({})


class Usual(NamedTuple):
    """The happenings of a step with their usual times, and how many seconds were lost where these were measured."""

    happenings: list[Happening]
    lost: float


def usual(own: Seen, others: Sequence[Seen], *, comparable: bool = False) -> Usual:
    """The own step's happenings with the times that they usually take, of its own and of the other steps.

    The gap before a call and the CPU's work in a fallback are the shortest, or where the steps' times are `comparable`
    those in the middle. A batch takes its median anyway, as one batch truly differs from the next.
    """
    steps = [own, *others]
    codes = [[happening.host_code for happening in step.happenings] for step in steps]
    works = [[happening.work for happening in step.happenings] for step in steps]
    of = _middle_of if comparable else _shortest_of
    gaps = _chosen([_by_place(step, times, 0) for step, times in zip(steps, codes, strict=True)], of)
    worked = _chosen([_by_place(step, times, 1) for step, times in zip(steps, works, strict=True)], of)
    batches = sorted(batch.work or 0.0 for step in steps for batch in step.happenings if batch.kind == "batch")
    found = []
    for at, happening in enumerate(own.happenings):
        if (gap := gaps.get(at)) is not None and gap.seconds != happening.host_code:
            happening = happening._replace(host_code=gap.seconds)
        if happening.kind == "batch":
            happening = happening._replace(work=batches[(len(batches) - 1) // 2])
        elif (work := worked.get(at)) is not None:
            happening = happening._replace(work=work.seconds)
        found.append(happening)
    return Usual(found, sum(time.lost for times in (gaps, worked) for time in times.values()))


class _Time(NamedTuple):
    """Seconds that something took, those that were lost meanwhile, and the number of its happening."""

    seconds: float
    lost: float
    at: int

    @property
    def is_known(self) -> bool:
        return self.is_whole or self.seconds >= _KNOWN

    @property
    def is_whole(self) -> bool:
        return self.seconds >= _WHOLE * (self.seconds + self.lost)


def _by_place(step: Seen, times: Sequence[float | None], which: int) -> dict[Hashable, list[_Time]]:
    """Times in order, by place and the one before; `which` of the lost times is theirs."""
    found: defaultdict[Hashable, list[_Time]] = defaultdict(list)
    before: Hashable = None
    lost = step.lost
    for at, (place, time) in enumerate(zip(step.places, times, strict=True)):
        if time is not None:
            found[before, place].append(_Time(time, lost[at][which] if at in lost else 0.0, at))
        before = place
    for row in found.values():
        row.sort()
    return found


def _chosen(steps: Sequence[Mapping[Hashable, list[_Time]]], of: Callable[[list[_Time]], _Time]) -> dict[int, _Time]:
    """For each happening of the first step the usual one `of` the times at its height among those of its place.

    Of those that are known, where there is one.
    """
    own, *others = steps
    found: dict[int, _Time] = {}
    for place, row in own.items():
        same = [other[place] for other in others if place in other]
        for rank, time in enumerate(row):
            alike = [time, *(times[(2 * rank + 1) * len(times) // (2 * len(row))] for times in same)]
            found[time.at] = of([other for other in alike if other.is_known] or alike)
    return found


def _shortest_of(times: list[_Time]) -> _Time:
    """The shortest, but of several that were interrupted the quickest one is passed over.

    From what the thread lost, some may have been lost just before, so that too little is left.
    """
    interrupted = sorted(time for time in times if not time.is_whole)
    whole = [time for time in times if time.is_whole]
    return min([*whole, *interrupted[len(interrupted) >= _SEVERAL :][:1]])


def _middle_of(times: list[_Time]) -> _Time:
    """The one in the middle, of those that were not interrupted where these are several."""
    whole = [time for time in times if time.is_whole]
    ordered = sorted(whole if len(whole) >= _FEW else times)
    return ordered[(len(ordered) - 1) // 2]
