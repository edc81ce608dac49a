"""What the checker found, in words: one fault for each kernel, line and kind, with its first case and how often."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anymps.metal.checking._events import Event, Kind
from anymps.metal.checking._lines import ShaderLine, find_places, user_place
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
    def __init__(self, launched: Launched, places: Mapping[int, tuple[ShaderLine, ...]]) -> None:
        self._launched = launched
        self._places = places
        self._lines = launched.source.splitlines()

    def faults(self, events: Sequence[Event]) -> list[ShaderFault]:
        together: dict[tuple[int, ShaderLine, int], list[Event]] = {}
        for event in events:
            if (
                event.kind == Kind.PLACES
                and not event.value
                and self._chain(event.pcs[0]) == self._chain(event.other_pc)
            ):
                continue  # one barrier of the source, of which the compiler made several
            apart = event.area if event.kind == Kind.NARROW else -1  # it has no line
            together.setdefault((event.kind, user_place(event.pcs, self._places), apart), []).append(event)
        found = []
        for (number, place, _), same in together.items():
            kind, first = Kind(number), same[0]
            what = self._sentence(kind, first, self._where(place))
            first_case = f"first in {_thread(first.thread)}, {_group(first.group)}"
            count = sum(event.count for event in same)
            times = {1: "once", 2: "twice"}.get(count, f"{count:,} times")
            what = f"{what}." if kind is Kind.NARROW else f"{what} ({first_case}; {times} {self._launched.checked})."
            found.append(
                ShaderFault(kind.name.lower(), self._launched.kernel, place.line, what, serious=kind not in _UNSURE)
            )
        return found

    def _chain(self, address: int) -> tuple[ShaderLine, ...] | int:
        return self._places.get(address) or address

    def _where(self, place: ShaderLine) -> str:
        if place.header:
            return f" in {place.header}:{place.line}"
        if not 0 < place.line <= len(self._lines):
            return ""
        text = self._lines[place.line - 1].strip()
        text = text if len(text) <= _MAX_LINE else text[: _MAX_LINE - 1] + "…"
        return f" at line {place.line}, `{text}`"

    def _sentence(self, kind: Kind, event: Event, where: str) -> str:
        """What an event says of the kernel; `where` is its line."""
        name, size = self._launched.areas[event.area] if event.area >= 0 else ("", 0)
        there = self._where(user_place([event.other_pc], self._places))
        adds = kind in (Kind.LOST_ADD, Kind.PARTIAL_SUM) and event.how & _ADDS
        does, done = ("stores to", "stored to") if kind is Kind.LOST_ADD else ("loads from", "loaded from")
        return _SENTENCES[kind].format(
            kernel=f"Metal kernel `{self._launched.kernel}`",
            where=where,
            there=" there, too" if there == where and kind is not Kind.PLACES else there,
            area=name,
            size=f"{size:,}",
            side="before the start" if event.offset < 0 else "past the end",
            bytes=_bytes(event.size),
            at=f"{_bytes(event.size)} at byte {event.offset:,}",
            value=f"{event.value:,}",
            verb="writes" if event.how & 1 else "reads",
            written="written" if event.other_how & 1 else "read",
            adds="adds to" if adds else does,
            added=done if adds else "added to",
            other=_thread(event.other),
            far=self._far(event).format(where=where) if kind is Kind.WILD else "",
            threads="thread of the group does" if event.value == 1 else "threads of the group do",
            lanes="lane" if event.value == 1 else "lanes",
            type=_type(event),
            what=_misaligned(event),
            place=f": byte {event.offset:,} of {name}" if name else "",
            absent="has returned or took another branch" if event.size else "does not exist: the group ends before it",
        )

    def _far(self, event: Event) -> str:
        """What memory that is nobody's most likely was meant to be; the line stands behind the first words."""
        missing = self._launched.missing
        if event.value >= _NULL or missing <= 0:
            return "memory far from every buffer that it was given{where}"
        more = f"{missing} more buffer{'' if missing == 1 else 's'}"
        return f"a buffer that it was not given{{where}}: it has {more} than the call gave it"


_SENTENCES = {
    Kind.OUTSIDE: "The {kernel} {verb} {side} of {area}{where}: {at} of {size}",
    Kind.WILD: "The {kernel} {verb} {far}",
    Kind.RACE: (
        "The {kernel} {verb} {area}{where}, which {other} has {written}{there}, with no barrier in between: {at}"
    ),
    Kind.SAME_VALUE: (
        "Several threads of the {kernel} write the same value to {area}{where}, with no barrier in between: {at}, "
        "{other} among them"
    ),
    Kind.PLACES: "Threads of a group of the {kernel} wait at different barriers: one{where}, and {other}{there}",
    Kind.MISSING: (
        "The {kernel} reaches a barrier{where} that {value} {threads} not reach: {other} has returned before"
    ),
    Kind.UNINITIALISED: ("The {kernel} reads threadgroup memory{where} that no thread of the group has written: {at}"),
    Kind.SHIFT: "The {kernel} shifts a value of type `{type}` by {value}{where}",
    Kind.DIVISION: "The {kernel} divides an integer by zero{where}",
    Kind.INDEX: "The {kernel} takes the element {value} of a `{type}`{where}",
    Kind.LANE: "The {kernel} reads lane {value} by a SIMD call{where}, and that lane {absent}",
    Kind.MATRIX: "The {kernel} multiplies matrices of a SIMD group{where} with {value} of its 32 lanes missing",
    Kind.SIMD_MISSING: (
        "The {kernel} reaches a barrier of a SIMD group{where} without {value} {lanes} of it: {other} does not reach it"
    ),
    Kind.NARROW: "The {kernel} takes {bytes} as {area}, and the call gave it {value}{where}",
    Kind.MISALIGNED: (
        "The {kernel} reads or writes {what}{where} at a misaligned address, not a multiple of {value}{place}"
    ),
    Kind.LOST_ADD: (
        "The {kernel} atomically {adds} {area}{where}, which {other} has {added}{there}, with no barrier in between: "
        "an addition before the store is lost, {at}"
    ),
    Kind.PARTIAL_SUM: (
        "The {kernel} atomically {adds} {area}{where}, which {other} has {added}{there}, with no barrier in between: "
        "the value loaded lacks what is added later, {at}"
    ),
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


def _misaligned(event: Event) -> str:
    """What lies at a misaligned address."""
    kind = re.sub(r"^(?:const )?(?:struct )?", "", _type(event))
    return "a vector" if re.match(r"(?:anymps_vectors::)?(?:vec|storage)\b", kind) else f"a value of type `{kind}`"
