"""Two recordings of nearly the same program: work that both do is given the same host time in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from anymps.cost import Happening

_MOST_KEPT: Final = 20_000  # happenings of a step whose times are kept
_MOST_ALIGNED: Final = 3_000  # between what the steps have in common at their beginning and end: a second's work


class HostTime(NamedTuple):
    """What a happening is, and what the program's own code before it and the CPU's work in it take, in seconds."""

    what: str
    host_code: float
    work: float | None


class HostTimes(NamedTuple):
    """Those of a step in their order, and how `busy` the machine was, as a forecast has it."""

    times: tuple[HostTime, ...]
    busy: float

    @classmethod
    def read(cls, plain: tuple[Iterable[Iterable[Any]], float]) -> HostTimes:
        """From plain lists, as JSON has them."""
        times, busy = plain
        return cls(tuple(HostTime(*row) for row in times), busy)


def host_times(happenings: Sequence[Happening], busy: float) -> HostTimes:
    """Those of a step; none of one that is too long to be compared."""
    kept = happenings if len(happenings) <= _MOST_KEPT else ()
    return HostTimes(tuple(HostTime(_what(happening), happening.host_code, happening.work) for happening in kept), busy)


def with_times_of(before: Sequence[HostTime], happenings: Sequence[Happening]) -> list[Happening]:
    """The happenings, those that the step before has too with its times."""
    found = list(happenings)
    names = [_what(happening) for happening in found]
    for at, of in _common([time.what for time in before], names):
        found[of] = found[of]._replace(host_code=before[at].host_code, work=before[at].work)
    return found


def _what(happening: Happening) -> str:
    return f"{happening.kind} {happening.call.operator if happening.call is not None else ''} {happening.part}"


def _common(one: Sequence[str], two: Sequence[str]) -> list[tuple[int, int]]:
    """The places of what two lists have in common, in order."""
    shorter = min(len(one), len(two))
    head = next((at for at in range(shorter) if one[at] != two[at]), shorter)
    left = shorter - head
    tail = next((at for at in range(left) if one[-1 - at] != two[-1 - at]), left)
    pairs = [(at, at) for at in range(head)]
    middle = (one[head : len(one) - tail], two[head : len(two) - tail])
    if max(map(len, middle)) <= _MOST_ALIGNED:
        for block in SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
            pairs += [(head + block.a + at, head + block.b + at) for at in range(block.size)]
    return pairs + [(len(one) - at, len(two) - at) for at in range(tail, 0, -1)]
