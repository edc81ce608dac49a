"""The time of the program's own code before each call: from several steps, by place in the program.

A place is a line and operator with those before it. A place may come often in a step, and steps may differ: the gaps of
a place are sorted in each step, and of each rank the lower quartile counts, as what disturbs a program makes it slower.
Gaps in which the thread lost its core do not count beside several in which it did not: what is left of them is less
certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from anymps.cost import Happening

_WHOLE: Final = 0.9  # the share of a time in which the thread ran from which on it counts as uninterrupted
_FEW: Final = 3  # uninterrupted times from which on the interrupted ones do not count


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


def usual(own: Seen, others: Sequence[Seen]) -> Usual:
    """The own step's happenings with the times that they usually take, of its own and of the other steps.

    Gaps and the CPU's work in fallbacks go by their places; of all batches the median counts, as one batch truly
    differs from the next.
    """
    steps = [own, *others]
    codes = [[happening.host_code for happening in step.happenings] for step in steps]
    works = [[happening.work for happening in step.happenings] for step in steps]
    gaps = _chosen([_by_place(step, times, 0) for step, times in zip(steps, codes, strict=True)])
    worked = _chosen([_by_place(step, times, 1) for step, times in zip(steps, works, strict=True)])
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


def _chosen(steps: Sequence[Mapping[Hashable, list[_Time]]]) -> dict[int, _Time]:
    """For each happening of the first step the usual one of the times at its height among those of its place."""
    own, *others = steps
    found: dict[int, _Time] = {}
    for place, row in own.items():
        same = [other[place] for other in others if place in other]
        for rank, time in enumerate(row):
            found[time.at] = _quartile_of(
                [time, *(times[(2 * rank + 1) * len(times) // (2 * len(row))] for times in same)]
            )
    return found


def _quartile_of(times: list[_Time]) -> _Time:
    """The lower quartile, of those that were not interrupted where these are several or most."""
    whole = [time for time in times if time.is_whole]
    ordered = sorted(whole if len(whole) >= min(_FEW, len(times) / 2) else times)
    return ordered[(len(ordered) - 1) // 4]
