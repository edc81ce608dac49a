"""Capture of a test suite: one tape for the whole session, read section by section, a test at a time.

A suite makes millions of calls; a gate needs the few that waited, ran on the CPU or were refused. So a section keeps
only those, and every call only for a block inside a test or a limit on memory.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anymps._numbers import digits
from anymps.capture._recorder import ALLOCATION_LIMIT, DETAIL_LIMIT, Capture, site_row
from anymps.device import real_calls
from anymps.record import Fate, Flag, Refusal, RefusalKind, Site, Wait
from anymps.record.format import ENTRY, Row, mattering

if TYPE_CHECKING:
    from anymps.record import Recording

# Fields of an entry, in their order.
_SEQUENCE, _SIGNATURE, _SITE, _STEP, _WAIT, _FLAGS, _REFUSAL = map(
    ENTRY.index, ("sequence", "signature", "site", "step", "wait", "flags", "refusal")
)
# A factory allocates without an entry and then fills: these name its line.
_FILLS = {f"aten::{name}_" for name in ("bernoulli", "copy", "fill", "normal", "random", "uniform", "zero")}
_FILLS |= {"aten::arange", "aten::eye", "aten::linspace"}
_TENSOR = re.compile(r"(?:complex|[a-z]+)?(\d*)\w*\[([\d, ]*)\]")  # `float32[2, 3]`


@dataclass(frozen=True)
class Allocation:
    """Results of one kind that one line made: `tensor` as in `float32[2, 3]`, `size` in bytes of all `count`."""

    operator: str
    tensor: str
    site: Site
    count: int
    size: int


@dataclass(frozen=True)
class LateError:
    """An error that a kernel left on the device, and the line of its call if the device knows it."""

    message: str
    site: Site


@dataclass
class Section:
    """What one part of a session did. The counters are by operator, by wait or fate, and by line.

    `calls` counts everything that reached the device, `real` what PyTorch's own kernels have computed of it; a fallback
    stands among the waits too.
    """

    calls: int = 0
    real: int = 0
    waits: Counter[tuple[str, Wait, Site]] = field(default_factory=Counter)
    fallbacks: Counter[tuple[str, Fate, Site]] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)


class SuiteCapture(Capture):
    """Records a session and cuts it into sections. With a path, the recording of all of it is kept there as well."""

    _habits = False  # a gate ignores loaders, clocks and the like of a test

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        script: str = "",
        argv: Sequence[str] = (),
        detail_limit: int = DETAIL_LIMIT,
    ) -> None:
        # The tape's own limit is none: what is kept is limited here. Memory is a matter of the file alone.
        allocations = 0 if path is None else ALLOCATION_LIMIT
        super().__init__(path, script=script, argv=argv, detail_limit=1 << 62, allocation_limit=allocations)
        self._detail_limit = detail_limit
        self._names: list[str] = []
        self._signatures: dict[int, Row] = {}
        self._sites: dict[int, Row] = {}
        self._places: dict[int, Site] = {}
        self._modules: list[Row] = []
        self._steps: list[Row] = []
        self._section = bytearray()
        self._section_calls = 0
        self._real_cut = 0  # how many calls real kernels had computed at the last cut
        self._section_refusals: list[Row] = []
        self._everything = 0  # how many ask for every call
        self._kept = 0

    def __enter__(self) -> SuiteCapture:
        super().__enter__()
        self._real_cut = sum(self._real_before.values())
        self._choose()
        return self

    @property
    def _to_file(self) -> bool:
        """Whether a recording is kept: a file that took no more is done, and the sections go on."""
        return self._path is not None and self._failure is None

    def _choose(self) -> None:
        """Whether plain calls are written at all: for the file, or for somebody who asks for every call."""
        self.core.tape_sparse(not self._to_file and not self._everything)

    def _tell(self, line: str) -> None:
        """Nothing: what a test writes is its own, and the session tells `failure` at its end."""

    def cut(self) -> Section:
        """What happened since the last cut."""
        with self._lock:
            self.flush()
            entries, self._section = bytes(self._section), bytearray()
            rows, self._section_refusals = self._section_refusals, []
            calls, self._section_calls = self._section_calls, 0
            section = self._read(entries, rows, calls)
            self._real_cut += section.real
        return section

    def so_far(self) -> Section:
        """The same, and the section goes on."""
        with self._lock:
            self.flush()
            return self._read(bytes(self._section), self._section_refusals, self._section_calls)

    def late_error(self) -> LateError | None:
        """The error that a kernel has left on the device, which no longer raises it. None if there is none."""
        if self._closed.is_set():
            return None
        taken = self.core.take_late_error()
        if taken is None:
            return None
        number, message = taken
        row = self._delayed.get(number)
        self._delayed.clear()  # the device forgets the others
        with self._lock:
            self.flush()
            return LateError(message, self._site(row[5]) if row is not None else Site("", 0))

    @contextmanager
    def every_call(self) -> Iterator[None]:
        """Keep every call of the running section, for `allocations` and `block`."""
        with self._lock:
            self.flush()
            self._everything += 1
            self._choose()
        try:
            yield
        finally:
            with self._lock:
                self.flush()
                self._everything -= 1
                self._choose()

    def position(self) -> int:
        """Where the running section stands now, for `block`."""
        with self._lock:
            self.flush()
            return len(self._section)

    def block(self, start: int) -> Recording:
        """What was recorded since `position` was `start`, in the same section, as a recording of its own."""
        with self._lock:
            self.flush()
            packed = bytes(self._section[start:])
            entries = list(ENTRY.iter_unpack(packed))
            signatures = [self._signatures[number] for number in sorted({entry[_SIGNATURE] for entry in entries})]
            refused, steps = {entry[_REFUSAL] for entry in entries}, {entry[_STEP] for entry in entries}
            refusals = [row for row in self._section_refusals if row[0] in refused]
            sites = {entry[_SITE] for entry in entries} | {site for row in refusals for site in row[5:7]}
            # The mark of a copy that was touched too early names two more lines in its `sequence`.
            copies = [entry[_SEQUENCE] for entry in entries if entry[_FLAGS] & Flag.UNSAFE_COPY]
            sites |= {site for pair in copies for site in (pair & 0xFFFFFFFF, pair >> 32)}
            from anymps.record import RecordingWriter

            writer = RecordingWriter.in_memory({**self._facts(), "ending": {"status": 0}})
            writer.add("operators", [(each, self._names[each]) for each in sorted({row[1] for row in signatures})])
            writer.add("signatures", signatures)
            writer.add("modules", self._modules)
            writer.add("sites", [site_row(self._sites[number]) for number in sorted(sites & self._sites.keys())])
            writer.add("refusals", refusals)
            writer.add("steps", [row for row in self._steps if row[0] in steps])
            writer.spool(packed)
        writer.close()
        return writer.recording()

    def allocations(self) -> list[Allocation]:
        """The results that the running section made or filled, the largest sum first. Needs `every_call`."""
        with self._lock:
            self.flush()
            packed = bytes(self._section)
        counts = Counter(
            (entry[_SIGNATURE], entry[_SITE])
            for entry in ENTRY.iter_unpack(packed)
            if not entry[_FLAGS] & (Flag.VIEW | Flag.RAISED)
        )
        found: list[Allocation] = []
        for (signature, site), count in counts.items():
            _, operator, fate, inputs, outputs, _ = self._signatures[signature]
            name = self._names[operator]
            base, _, overload = name.partition(".")
            tensors = json.loads(outputs)
            if base.endswith("_") or overload.endswith("out"):  # the result was there, or has been made for this
                tensors = json.loads(inputs)[-1:] if base in _FILLS else []
            for tensor, number in Counter(tensors).items():
                size = count * number * tensor_bytes(tensor)
                if size and fate != Fate.MARK:
                    found.append(Allocation(name, tensor, self._site(site), count * number, size))
        return sorted(
            found,
            key=lambda allocation: (-allocation.size, allocation.site.file, allocation.site.line, allocation.operator),
        )

    def close(self, ending: Mapping[str, object], suite: Mapping[str, object] | None = None) -> None:
        """Stop; with a path, end the file with how the session ended and with `suite`, what it keeps of its tests."""
        with self._lock:
            if self._to_file and self._writer is not None and not self._closed.is_set():
                self.flush()
                with self._storing(""):
                    self._writer.add("totals", self.core.tape_totals())
                    if suite is not None:
                        self._writer.set_meta("suite", dict(suite))
            super().close(ending)

    def _store(self, entries: bytes, rows: Mapping[str, list[Row]], dropped: int) -> None:
        self._names += [name for _, name in rows["operators"]]
        self._signatures |= {row[0]: row for row in rows["signatures"]}
        self._sites |= {row[0]: row for row in rows["sites"]}
        self._modules += rows["modules"]
        self._steps += rows["steps"]
        self._section_refusals += rows["refusals"]
        self._section_calls += len(entries) // ENTRY.size + dropped
        # A sparse tape has few entries besides those that matter.
        all_of_them = self._everything or not self._to_file
        self._section += entries if all_of_them else mattering(entries)
        if self._to_file:
            entries = entries if self._kept < self._detail_limit else mattering(entries)
            self._kept += len(entries) // ENTRY.size
            # No totals: a suite has too many to write each time. No rounds: its tests are not a loop.
            self._write(entries, {**rows, "rounds": []})

    def _read(self, packed: bytes, rows: Sequence[Row], calls: int) -> Section:
        last = {row[0]: row for row in rows}  # a late error has a second row when it comes out
        real = sum((real_calls() or Counter()).values()) - self._real_cut
        section = Section(calls=calls, real=real, refusals=[self._refusal(row) for row in last.values()])
        if not packed:
            return section
        counts = Counter((entry[_SIGNATURE], entry[_WAIT], entry[_SITE]) for entry in ENTRY.iter_unpack(packed))
        for (signature, wait, site), count in counts.items():
            if wait == Wait.NONE:
                continue
            _, operator, fate, *_ = self._signatures[signature]
            name, place = self._names[operator], self._site(site)
            section.waits[name, Wait(wait), place] += count
            if fate in (Fate.FALLBACK, Fate.ALWAYS_FALLBACK):
                section.fallbacks[name, Fate(fate), place] += count
        return section

    def _refusal(self, row: Row) -> Refusal:
        _, _, kind, error, message, site, origin, detail = row
        return Refusal(
            kind=RefusalKind(kind),
            error=error,
            message=message,
            operator=str(detail.get("operator", "")),
            site=self._site(site),
            origin=self._site(origin),
            detail=detail,
        )

    def _site(self, number: int) -> Site:
        known = self._places.get(number)
        if known is None:
            row = self._sites.get(number)
            known = self._places[number] = Site(*site_row(row)[1:]) if row is not None else Site("", 0)
        return known


def tensor_bytes(tensor: str) -> int:
    """The bytes of a tensor given as `float32[2, 3]`; one on the CPU takes none of the device."""
    match = _TENSOR.fullmatch(tensor)
    if match is None:
        return 0
    width = 8 if match[1] == "" else digits(match[1])  # bool
    return math.prod(digits(size.strip()) for size in match[2].split(",") if size.strip()) * width // 8
