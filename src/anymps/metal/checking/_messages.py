"""What the checker found, in words: one fault for each kernel, line and kind, with its first case and how often."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anymps.metal.checking._events import Event, Kind
from anymps.metal.checking._lines import Place, find_places, user_place
from anymps.metal.checking._sample import Sample

_MAX_LINE = 100  # characters of a line of source that are shown
_ADDS = 4  # of `How` in checking/events.h
_NULL = 1 << 20  # addresses below are those of a buffer that was not given
_UNSURE = frozenset({Kind.SAME_VALUE, Kind.MISSING, Kind.SHIFT, Kind.SIMD_MISSING, Kind.PARTIAL_SUM})


@dataclass(frozen=True)
class ShaderFault:
    """One thing that is wrong with a kernel: the name of its kind, and a sentence or two.

    `serious`: a Mac computes something else, or anything. Else it works on the Macs of today without being allowed to.
    """

    kind: str
    kernel: str
    line: int
    what: str
    serious: bool


@dataclass(frozen=True)
class Launched:
    """What was launched: the names of the memory areas with their bytes, how many buffers were not given.

    `sample` are the groups that were checked.
    """

    kernel: str
    source: str
    library: Path
    areas: Sequence[tuple[str, int]]
    missing: int
    sample: Sample

    @property
    def checked(self) -> str:
        """What of it was checked, as a sentence ends."""
        sample = self.sample
        if sample.whole:
            return "in the launch"
        return f"in {len(sample.groups):,} of {sample.total:,} groups, seed {sample.seed}"


def describe(events: Sequence[Event], launched: Launched) -> list[ShaderFault]:
    """The faults of one launch, in the order in which they were found."""
    if not events:
        return []
    addresses = {pc for event in events for pc in (*event.pcs, event.other_pc)}
    return _Words(launched, find_places(launched.library, addresses)).faults(events)


class _Words:
    def __init__(self, launched: Launched, places: Mapping[int, tuple[Place, ...]]) -> None:
        self._launched = launched
        self._places = places
        self._lines = launched.source.splitlines()

    def faults(self, events: Sequence[Event]) -> list[ShaderFault]:
        together: dict[tuple[int, Place, int], list[Event]] = {}
        for event in events:
            if (
                event.kind == Kind.PLACES
                and not event.value
                and self._chain(event.pcs[0]) == self._chain(event.other_pc)
            ):
                continue  # one barrier of the source, of which the compiler made several
            apart = event.area if event.kind == Kind.NARROW else -1  # it has no line
            together.setdefault((event.kind, self._place(event), apart), []).append(event)
        found = []
        for (number, place, _), same in together.items():
            kind, first = Kind(number), same[0]
            what = _SENTENCES[kind](self, first, self._where(place))
            first_case = f"first in {_thread(first.thread)}, {_group(first.group)}"
            count = sum(event.count for event in same)
            times = {1: "once", 2: "twice"}.get(count, f"{count:,} times")
            what = f"{what}." if kind is Kind.NARROW else f"{what} ({first_case}; {times} {self._launched.checked})."
            found.append(
                ShaderFault(kind.name.lower(), self._launched.kernel, place.line, what, serious=kind not in _UNSURE)
            )
        return found

    def _chain(self, address: int) -> tuple[Place, ...] | int:
        return self._places.get(address) or address

    def _place(self, event: Event) -> Place:
        return user_place(event.pcs, dict(self._places))

    def _where(self, place: Place) -> str:
        if place.header:
            return f" in {place.header}:{place.line}"
        if not 0 < place.line <= len(self._lines):
            return ""
        text = self._lines[place.line - 1].strip()
        text = text if len(text) <= _MAX_LINE else text[: _MAX_LINE - 1] + "…"
        return f" at line {place.line}, `{text}`"

    def _other(self, event: Event) -> str:
        return self._where(user_place([event.other_pc], dict(self._places)))

    def _subject(self) -> str:
        return f"The Metal kernel `{self._launched.kernel}`"

    def _area(self, event: Event) -> tuple[str, int]:
        name, size = self._launched.areas[event.area]
        return name, size

    def outside(self, event: Event, where: str) -> str:
        name, size = self._area(event)
        verb = "writes" if event.how & 1 else "reads"
        side = "before the start" if event.offset < 0 else "past the end"
        return (
            f"{self._subject()} {verb} {side} of {name}{where}: {_bytes(event.size)} at byte {event.offset:,} "
            f"of {size:,}"
        )

    def wild(self, event: Event, where: str) -> str:
        verb = "writes" if event.how & 1 else "reads"
        missing = self._launched.missing
        if event.value < _NULL and missing > 0:
            more = f"{missing} more buffer{'' if missing == 1 else 's'}"
            return (
                f"{self._subject()} {verb} a buffer that it was not given{where}: it has {more} than the call gave it"
            )
        return f"{self._subject()} {verb} memory far from every buffer that it was given{where}"

    def narrow(self, event: Event, where: str) -> str:
        name, _ = self._area(event)
        return (
            f"The Metal kernel `{self._launched.kernel}` takes {_bytes(event.size)} as {name}, and the call gave it "
            f"{event.value:,}{where}"
        )

    def race(self, event: Event, where: str) -> str:
        name, _ = self._area(event)
        verb = "writes" if event.how & 1 else "reads"
        other = "written" if event.other_how & 1 else "read"
        there = self._other(event)
        there = " there, too" if there == where else there
        return (
            f"{self._subject()} {verb} {name}{where}, which {_thread(event.other)} has {other}{there}, with no barrier "
            f"in between: {_bytes(event.size)} at byte {event.offset:,}"
        )

    def lost_add(self, event: Event, where: str) -> str:
        return self._unordered(event, where, "stores to", "stored to", "an addition before the store is lost")

    def partial_sum(self, event: Event, where: str) -> str:
        return self._unordered(event, where, "loads from", "loaded from", "the value loaded lacks what is added later")

    def _unordered(self, event: Event, where: str, does: str, done: str, why: str) -> str:
        """An atomic addition and another atomic, which `does` something; `event.how` is the later one's."""
        name, _ = self._area(event)
        adds = event.how & _ADDS
        verb, other = ("adds to", done) if adds else (does, "added to")
        there = self._other(event)
        there = " there, too" if there == where else there
        return (
            f"{self._subject()} atomically {verb} {name}{where}, which {_thread(event.other)} has {other}{there}, with "
            f"no barrier in between: {why}, {_bytes(event.size)} at byte {event.offset:,}"
        )

    def same_value(self, event: Event, where: str) -> str:
        name, _ = self._area(event)
        return (
            f"Several threads of the Metal kernel `{self._launched.kernel}` write the same value to {name}{where}, "
            f"with no barrier in between: {_bytes(event.size)} at byte {event.offset:,}, {_thread(event.other)} among "
            "them"
        )

    def places(self, event: Event, where: str) -> str:
        return (
            f"Threads of a group of the Metal kernel `{self._launched.kernel}` wait at different barriers: one{where}, "
            f"and {_thread(event.other)}{self._other(event)}"
        )

    def missing(self, event: Event, where: str) -> str:
        many = "thread" if event.value == 1 else "threads"
        return (
            f"{self._subject()} reaches a barrier{where} that {event.value:,} {many} of the group do not reach: "
            f"{_thread(event.other)} has returned before"
        ).replace(" thread of the group do not", " thread of the group does not")

    def uninitialised(self, event: Event, where: str) -> str:
        return (
            f"{self._subject()} reads threadgroup memory{where} that no thread of the group has written: "
            f"{_bytes(event.size)} at byte {event.offset:,}"
        )

    def misaligned(self, event: Event, where: str) -> str:
        kind = re.sub(r"^(?:const )?(?:struct )?", "", _type(event))
        what = "a vector" if re.match(r"(?:anymps_vectors::)?(?:vec|storage)\b", kind) else f"a value of type `{kind}`"
        place = ""
        if event.area >= 0:
            place = f": byte {event.offset:,} of {self._area(event)[0]}"
        subject = f"{self._subject()} reads or writes {what}{where}"
        return f"{subject} at a misaligned address, not a multiple of {event.value:,}{place}"

    def shift(self, event: Event, where: str) -> str:
        return f"{self._subject()} shifts a value of type `{_type(event)}` by {event.value:,}{where}"

    def division(self, event: Event, where: str) -> str:
        return f"{self._subject()} divides an integer by zero{where}"

    def index(self, event: Event, where: str) -> str:
        return f"{self._subject()} takes the element {event.value:,} of a `{_type(event)}`{where}"

    def lane(self, event: Event, where: str) -> str:
        why = "has returned or took another branch" if event.size else "does not exist: the group ends before it"
        return f"{self._subject()} reads lane {event.value} by a SIMD call{where}, and that lane {why}"

    def matrix(self, event: Event, where: str) -> str:
        return (
            f"{self._subject()} multiplies matrices of a SIMD group{where} with {event.value} of its 32 lanes missing"
        )

    def simd_missing(self, event: Event, where: str) -> str:
        many = "lane" if event.value == 1 else "lanes"
        return (
            f"{self._subject()} reaches a barrier of a SIMD group{where} without {event.value} {many} of it: "
            f"{_thread(event.other)} does not reach it"
        )


_SENTENCES: Mapping[Kind, Callable[[_Words, Event, str], str]] = {
    kind: getattr(_Words, kind.name.lower()) for kind in Kind
}


def _bytes(size: int) -> str:
    return f"{size} byte{'' if size == 1 else 's'}"


def _type(event: Event) -> str:
    text: bytes = event.text
    return text.decode(errors="replace").strip("'").replace(" [", "[")  # compilers write arrays differently


def _position(values: Sequence[int]) -> str:
    """`7`, `(3, 5)`, `(1, 2, 3)`: as many axes as are in use."""
    last = max((axis for axis, value in enumerate(values) if value), default=0)
    return str(values[0]) if last == 0 else f"({', '.join(str(value) for value in values[: last + 1])})"


def _thread(position: Sequence[int]) -> str:
    return f"thread {_position(position)}"


def _group(position: Sequence[int]) -> str:
    return f"group {_position(position)}"
