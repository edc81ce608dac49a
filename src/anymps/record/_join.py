"""Joins the recordings of several processes into one, as if they had run one after the other.

Operators, lines and modules are the same in all, and their counts add up. What belongs to one process stays its own:
its steps, threads, autograd nodes and allocator events are numbered after those of the process before, its clock goes
on where that one's ended, and its buffers are freed when it ends.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from anymps._atomic import staged_folder
from anymps._errors import RecordingError
from anymps._vocabulary import Flag
from anymps.record._file import open_readonly
from anymps.record._place import check_free, held, take_name
from anymps.record._recording import Recording
from anymps.record._writer import Numbered, RecordingWriter
from anymps.record.format import ALLOCATION, ENTRY

_OWN = ("process", "started", "wall_seconds", "ending", "card")  # facts of each process
_ALIKE = (
    ("torch_version", "torch"),
    ("mac_details", "Mac"),
    ("virtual", "device (virtual or a Mac's own)"),
    ("source", "source of calls (--source)"),
)  # what all parts must have in common, and what it is called
_CHUNK = 16384  # entries: 1 MiB
_NODE_LIMIT = 1 << 48  # of autograd: larger numbers are none, and adding to them could leave 64 bits

_BORN, _DIED, _BORN_NS, _DIED_NS, _MADE_BY, _STEP, _DIED_STEP, _DIED_PHASE = map(
    ALLOCATION.index, ("born", "died", "born_ns", "died_ns", "signature", "step", "died_step", "died_phase")
)
_ENTRIES = f"SELECT id, {', '.join(ENTRY.columns)} FROM entries ORDER BY id"
_LAST = (
    "SELECT COALESCE(MAX(start_ns + duration_ns), 0), COALESCE(MAX(step), -1), COALESCE(MAX(thread), -1), "
    f"COALESCE(MAX(sequence * (sequence < {_NODE_LIMIT} AND NOT flags & {Flag.UNSAFE_COPY | Flag.PAIR:d})), -1) "
    "FROM entries"
)
_TOTALS = "SELECT signature, module, site, phase, wait, direction, {count}, {duration}, {moved} FROM {table}"


def join(
    parts: Iterable[tuple[str, Recording]], writer: RecordingWriter, facts: Mapping[str, object] | None = None
) -> None:
    """Write all of these recordings, each with a name, into a new one; the caller closes the writer.

    `parts` under `meta` lists them: `name`, `begin_ns` (where its clock begins here), `complete`, and its
    own `process`, `started`, `wall_seconds` and `ending`. The other facts are those that all have in common;
    `started` is the earliest, `wall_seconds` the sum, `ending` the first that was no success. `facts` are those that
    hold for the whole in place of the parts'.
    One that stops in the middle goes in as far as it reaches. Raises RecordingError if one is damaged, or if the new
    one cannot be written.
    """
    joiner = _Joiner(writer)
    for name, recording in parts:
        joiner.add(name, recording)
    joiner.finish()
    for key, value in (facts or {}).items():
        writer.set_meta(key, value)


@dataclass
class _Reach:
    """How far the processes so far have come: the next free number of each kind, and the end of the clock in ns."""

    step: int = 0
    thread: int = 0
    node: int = 0
    refusal: int = 1
    buffer: int = 1
    event: int = 1
    clock: int = 0


@dataclass
class _Map:
    """From the numbers in one recording to those in the whole; 0 stays 0."""

    signature: dict[int, int]
    module: dict[int, int]
    site: dict[int, int]
    refusal: dict[int, int] = field(default_factory=dict)
    """By entry."""


class _Joiner:
    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._operators = Numbered(writer, "operators")
        self._signatures = Numbered(writer, "signatures")
        self._modules = Numbered(writer, "modules")
        self._sites = Numbered(writer, "sites")
        self._sums: dict[tuple[int, int, int, int, int, int], tuple[int, int, int]] = {}
        self._alive: list[list[int]] = []  # buffers that were there when the process before ended
        self._facts: list[dict[str, Any]] = []
        self._parts: list[dict[str, object]] = []
        self._loops: set[object] = set()  # what the steps are, of those processes that have any
        self._reach = _Reach()

    def add(self, name: str, recording: Recording) -> None:
        self._free_living_buffers()
        since = replace(self._reach)
        numbers = self._map(recording)
        self._refusals(recording, numbers, since)
        entries = self._entries(recording, numbers, since)
        while chunk := b"".join(islice(entries, _CHUNK)):
            self._writer.spool(chunk)
        self._steps(recording, numbers, since)
        self._allocations(recording, numbers, since)
        self._totals(recording, numbers)
        facts = recording.meta
        own = {key: facts[key] for key in _OWN if key in facts}
        self._parts += _parts_of(name, recording, since.clock, own)
        self._facts.append(facts)
        if recording.complete_steps:
            self._loops.add(facts.get("loop"))
        self._reach.clock += 1
        self._writer.commit()

    def finish(self) -> None:
        self._writer.spool(b"".join(ALLOCATION.pack(*row) for row in self._alive), ALLOCATION)
        self._writer.add("totals", [(*key, *sums) for key, sums in self._sums.items()])
        for key, value in _common(self._facts).items():
            self._writer.set_meta(key, value)
        if self._loops == {"inference"}:
            self._writer.set_meta("loop", "inference")
        real = [facts["real_calls"] for facts in self._facts if isinstance(facts.get("real_calls"), dict)]
        if real:
            self._writer.set_meta("real_calls", dict(sum(map(Counter, real), Counter())))
        if numbers := [facts["numbers"] for facts in self._facts if isinstance(facts.get("numbers"), dict)]:
            self._writer.set_meta("numbers", _summed(numbers))
        self._writer.set_meta("parts", self._parts)

    def _map(self, recording: Recording) -> _Map:
        rows = recording.stream
        operators = self._operators.take(rows("SELECT id, name FROM operators"))
        signatures = (
            (number, operators.get(operator, 0), *rest)
            for number, operator, *rest in rows("SELECT id, operator, fate, inputs, outputs, form FROM signatures")
        )
        return _Map(
            signature={0: 0} | self._signatures.take(signatures),
            module={0: 0} | self._modules.take(rows("SELECT id, path, type FROM modules WHERE id > 0")),
            site={0: 0} | self._sites.take(rows("SELECT * FROM sites WHERE id > 0")),
        )

    def _refusals(self, recording: Recording, numbers: _Map, since: _Reach) -> None:
        statement = "SELECT id, entry, kind, error, message, site, origin FROM refusals ORDER BY id"
        rows = []
        for row, refusal in zip(recording.stream(statement), recording.refusals(), strict=True):
            own, entry, kind, error, message, site, origin = row
            detail = dict(refusal.detail)
            if isinstance(event := detail.get("event"), int):
                detail["event"] = event + since.event - 1
            number = numbers.refusal[entry] = own + since.refusal - 1
            places = (numbers.site.get(site, 0), numbers.site.get(origin, 0))
            rows.append((number, 0, kind, error, message, *places, detail))
            self._reach.refusal = max(self._reach.refusal, number + 1)
        self._writer.add("refusals", rows)

    def _entries(self, recording: Recording, numbers: _Map, since: _Reach) -> Iterator[bytes]:
        signature, module, site, refusal = numbers.signature, numbers.module, numbers.site, numbers.refusal
        clock, step, thread, node, pack = since.clock, since.step, since.thread, since.node, ENTRY.pack
        marks = Flag.UNSAFE_COPY | Flag.PAIR
        for own, start, duration, moved, sequence, made_by, inside, line, at, by, *rest in recording.stream(_ENTRIES):
            if rest[3] & marks:
                lines = (sequence >> 32, sequence & 0xFFFFFFFF)
                sequence = site.get(lines[0], 0) << 32 | site.get(lines[1], 0)
            elif 0 <= sequence < _NODE_LIMIT:
                sequence += node
            yield pack(
                start + clock, duration, moved, sequence, signature.get(made_by, 0), module.get(inside, 0),
                site.get(line, 0), at + step, by + thread, *rest[:-1], refusal.get(own, 0), rest[-1],
            )  # fmt: skip
        ((clock, step, thread, node),) = recording.stream(_LAST)
        reach = self._reach
        reach.clock, reach.step = since.clock + clock, since.step + step + 1
        reach.thread, reach.node = since.thread + thread + 1, since.node + node + 1

    def _steps(self, recording: Recording, numbers: _Map, since: _Reach) -> None:
        reach, rows = self._reach, []
        for step in recording.steps():
            number, start = step.step + since.step, step.start_ns + since.clock
            end = None if step.end_ns is None else step.end_ns + since.clock
            rows.append((number, start, end))
            reach.step, reach.clock = max(reach.step, number + 1), max(reach.clock, end or start)
        self._writer.add("steps", rows)
        rounds = [
            (kind, key, numbers.site.get(site, 0), start + since.clock, end + since.clock)
            for kind, key, site, start, end in recording.stream(
                "SELECT kind, key, site, start_ns, end_ns FROM rounds ORDER BY id"
            )
        ]
        self._writer.add("rounds", rounds)

    def _allocations(self, recording: Recording, numbers: _Map, since: _Reach) -> None:
        """Take over the buffers.

        Those from before a later process was recorded are left out: before that process they were not there, and the
        counters in the other rows hold them.
        """
        reach, ended = self._reach, bytearray()
        for row in map(list, recording.stream("SELECT * FROM allocations ORDER BY id")):
            if self._parts and not row[_BORN]:
                continue
            row[0] += since.buffer - 1
            for place in (_BORN, _DIED):
                row[place] += since.event - 1 if row[place] else 0
            for place in (_BORN_NS, _DIED_NS):
                row[place] += since.clock
            for place in (_STEP, _DIED_STEP):
                row[place] += since.step
            made = (numbers.signature, numbers.module, numbers.site)
            of = slice(_MADE_BY, _MADE_BY + len(made))
            row[of] = (them.get(own, 0) for them, own in zip(made, row[of], strict=True))
            reach.buffer = max(reach.buffer, row[0] + 1)
            reach.event = max(reach.event, row[_BORN] + 1, row[_DIED] + 1)
            reach.clock = max(reach.clock, row[_BORN_NS], row[_DIED_NS])
            reach.step = max(reach.step, row[_STEP] + 1, row[_DIED_STEP] + 1)
            if row[_DIED]:
                ended += ALLOCATION.pack(*row)
            else:
                self._alive.append(row)
        self._writer.spool(bytes(ended), ALLOCATION)

    def _free_living_buffers(self) -> None:
        """A process has ended, and its buffers with it: one event, at the end of its clock."""
        reach = self._reach
        for row in self._alive:
            row[_DIED], row[_DIED_NS], row[_DIED_STEP], row[_DIED_PHASE] = reach.event, reach.clock, reach.step, 0
        self._writer.spool(b"".join(ALLOCATION.pack(*row) for row in self._alive), ALLOCATION)
        reach.event += bool(self._alive)
        self._alive = []

    def _totals(self, recording: Recording, numbers: _Map) -> None:
        table = "totals"
        words = {"count": "count", "duration": "duration_ns", "moved": "moved_bytes"}
        if recording.dropped == 0:  # a process that was killed leaves no totals; each call counts itself
            words = {"count": "COUNT(*)", "duration": "SUM(duration_ns)", "moved": "SUM(moved_bytes)"}
            table = "entries GROUP BY 1, 2, 3, 4, 5, 6"
        statement = _TOTALS.format(table=table, **words)
        for signature, module, site, phase, wait, direction, *sums in recording.stream(statement):
            place = (numbers.module.get(module, 0), numbers.site.get(site, 0))
            key = (numbers.signature.get(signature, 0), *place, phase, wait, direction)
            count, duration, moved = (a + b for a, b in zip(self._sums.get(key, (0, 0, 0)), sums, strict=True))
            self._sums[key] = (count, duration, moved)


def _parts_of(name: str, recording: Recording, clock: int, own: dict[str, Any]) -> list[dict[str, object]]:
    """The recording as one process, or the processes of one that was joined before, after its name."""
    inner: Any = recording.meta.get("parts")
    if not inner:
        return [{"name": name, "begin_ns": clock, "complete": recording.complete, **own}]
    return [{**part, "name": f"{name}, {part['name']}", "begin_ns": part["begin_ns"] + clock} for part in inner]


def _common(facts: list[dict[str, Any]]) -> dict[str, Any]:
    """What all say alike; of the facts that differ by nature, what holds for the whole."""
    if not facts:
        return {}
    common = {
        key: value
        for key, value in facts[0].items()
        if key not in ("schema_version", "complete", "begin_ns", "loop", "looks")
        and all(key in meta and meta[key] == value for meta in facts)
    }
    started = [meta["started"] for meta in facts if "started" in meta]
    seconds = [meta["wall_seconds"] for meta in facts if "wall_seconds" in meta]
    endings = [meta["ending"] for meta in facts if isinstance(meta.get("ending"), dict)]
    environments = [meta.get("environment") for meta in facts]
    if started:
        common["started"] = min(started)
    if seconds:
        common["wall_seconds"] = sum(seconds)
    if asked := [meta["times_of"] for meta in facts if "times_of" in meta]:
        common["times_of"] = asked[0]  # asked of the whole run, and noted in the recording of its script
    if endings:
        common["ending"] = next((ending for ending in endings if ending.get("status")), endings[0])
    if all(isinstance(environment, dict) for environment in environments):
        shared = set.intersection(
            *(set(environment.items()) for environment in environments if environment is not None)
        )
        common["environment"] = dict(sorted(shared))
    if all(isinstance(meta.get("suite"), dict) for meta in facts):
        common["suite"] = _suite([meta["suite"] for meta in facts])
    common["allocations_dropped"] = any(meta.get("allocations_dropped") for meta in facts)
    return common


def _suite(suites: list[dict[str, Any]]) -> dict[str, object]:
    """The tests of all shards of a suite: their numbers add up, and what is expected of each is expected."""
    numbers = {key for suite in suites for key, value in suite.items() if type(value) is int}
    expected = [row for suite in suites if isinstance(suite.get("expected"), list) for row in suite["expected"]]
    different = list({json.dumps(row, sort_keys=True): row for row in expected}.values())
    shared = {key: value for key, value in suites[0].items() if all(suite.get(key) == value for suite in suites)}
    summed = {key: sum(number for suite in suites if type(number := suite.get(key)) is int) for key in sorted(numbers)}
    return {**shared, **summed, **({"expected": different} if different else {})}


def _summed(numbers: list[dict[str, Any]]) -> dict[str, object]:
    """What the checks of numbers of several processes compared, together."""
    counts = {key: sum(int(one[key]) for one in numbers) for key in ("compared", "wrong")}
    left_out = sum((Counter(one["left_out"]) for one in numbers), Counter[str]())
    return {**counts, "operators": max(int(one["operators"]) for one in numbers), "left_out": dict(left_out)}


def join_into(
    parts: Iterable[tuple[str, Recording]], path: Path | None, facts: Mapping[str, object] | None = None
) -> Recording:
    """One recording of all at `path`, or in memory, as `join` makes it.

    What lies at `path` is replaced once the new one is complete. Raises RecordingError if a part is damaged or the
    place cannot be written; then `path` is as it was.
    """
    if path is None:
        with RecordingWriter(None, {}) as writer:
            join(parts, writer, facts)
        return _checked(writer)
    target = Path(os.path.realpath(path))
    check_free(target)
    try:
        with staged_folder(target) as folder:
            fresh = folder / "files" / target.name
            fresh.parent.mkdir()  # a recording's folder is locked while it is made
            with RecordingWriter(fresh, {}) as writer:
                join(parts, writer, facts)
            _checked(writer).close()
            with held(target):
                check_free(target)  # since then another run may have taken it
                take_name(fresh, target)
    except OSError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror or error}") from None
    return Recording(open_readonly(path), str(path))


def _checked(writer: RecordingWriter) -> Recording:
    """The joined recording. Each part is sound, but their clocks and numbers go on from one to the next."""
    try:
        return writer.recording(checked=True)
    except RecordingError as error:
        raise RecordingError(
            "these recordings cannot be joined: their numbers add up to more than a recording can hold"
        ) from error


def check_alike(parts: Sequence[tuple[str, Recording]]) -> None:
    """Raise RecordingError, in one line, unless all are of the same torch, Mac and kind of device."""
    for key, what in _ALIKE:
        (first, one), *others = parts
        for name, other in others:
            if one.meta.get(key) != other.meta.get(key):
                raise RecordingError(
                    f"{first} and {name} cannot be joined: their {what} differs, "
                    f"{_short(one.meta.get(key))} and {_short(other.meta.get(key))}"
                )


def _short(value: object) -> str:
    text = str(value).partition(":")[0]
    return ascii(text)[1:-1][:80] if not text.isprintable() else text[:80]
