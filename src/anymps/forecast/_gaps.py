"""What the program's own code takes before each call: from several steps, by place in the program.

A place is a line and operator with those before it. It may come often in a step, and steps need not be alike: the gaps
of one place are put in order in each step, and each gap counts as the shortest of those at the same height. What is
longer was held up by something else on the machine, as with `timeit`; what one pass in ten really takes longer stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from anymps.cost import Happening


class Seen(NamedTuple):
    """A step as it was seen: what happens, each with its place in the program."""

    happenings: list[Happening]
    places: list[Hashable]


def usual(own: Seen, others: Sequence[Seen]) -> list[Happening]:
    """The own step's happenings with the times that they usually take, of its own and of the other steps.

    The gap before a call and the CPU's work in a fallback are the shortest; a batch takes its median, as one batch
    truly differs from the next.
    """
    steps = [own, *others]
    gaps = _shortest([_by_place(step, [happening.host_code for happening in step.happenings]) for step in steps])
    works = _works(steps)
    found = []
    for at, happening in enumerate(own.happenings):
        if (code := gaps.get(at)) is not None and code != happening.host_code:
            happening = happening._replace(host_code=code)
        if (work := works.get(at)) is not None:
            happening = happening._replace(work=work)
        found.append(happening)
    return found


def _works(steps: Sequence[Seen]) -> dict[int, float]:
    """The CPU's work in fallbacks and batches, by the happening's number in the first step."""
    batches = sorted(batch.work or 0.0 for step in steps for batch in step.happenings if batch.kind == "batch")
    works = [_by_place(step, [happening.work for happening in step.happenings]) for step in steps]
    found = _shortest(works)
    for at, happening in enumerate(steps[0].happenings):
        if happening.kind == "batch":
            found[at] = batches[(len(batches) - 1) // 2]
    return found


def _by_place(step: Seen, times: Sequence[float | None]) -> dict[Hashable, list[tuple[float, int]]]:
    """Times with the numbers of their happenings, in order, by place and the one before."""
    found: defaultdict[Hashable, list[tuple[float, int]]] = defaultdict(list)
    before: Hashable = None
    for at, (place, time) in enumerate(zip(step.places, times, strict=True)):
        if time is not None:
            found[before, place].append((time, at))
        before = place
    for row in found.values():
        row.sort()
    return found


def _shortest(steps: Sequence[Mapping[Hashable, list[tuple[float, int]]]]) -> dict[int, float]:
    """For each happening of the first step the shortest of the times at its height among those of its place."""
    own, *others = steps
    found: dict[int, float] = {}
    for place, row in own.items():
        same = [other[place] for other in others if place in other]
        for rank, (time, at) in enumerate(row):
            found[at] = min([time, *(times[(2 * rank + 1) * len(times) // (2 * len(row))][0] for times in same)])
    return found
