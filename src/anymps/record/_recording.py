"""A recording for reading: a file, or the same in memory, and the queries that reports use.

The answers are added up in SQL, so a million entries stay a matter of seconds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from anymps._vocabulary import Direction, Fate, Flag, RefusalKind
from anymps.record._facts import (
    Call,
    Line,
    MemorySample,
    Noted,
    Occurrence,
    OperatorUse,
    Optimizer,
    Refusal,
    Signature,
    Site,
    UnsafeCopy,
    WaitQueue,
)
from anymps.record._file import OpenFile, open_readonly
from anymps.record._memory import MemoryStory, read_samples, tell
from anymps.record._processes import LinesByProcess, read_lines_by_process
from anymps.record._queues import read_queues
from anymps.record._rounds import loop_begins
from anymps.record._rows import within
from anymps.record._step_facts import Step, StepQueue, StepSum, StepTable
from anymps.record._step_table import read_step_sums, read_step_table, typical_step
from anymps.record._strict import read_facts, read_form, read_object, read_optimizer, read_texts
from anymps.record._sums import read_lines, read_occurrences, read_operators
from anymps.record._walk import Walk, walk
from anymps.record.format import ON_CPU, ON_MPS, Picked
from anymps.rules.faults import ELSEWHERE

_T = TypeVar("_T")

_ELSEWHERE: Final = f"anymps::hazard.{ELSEWHERE}"


def _computed_once(method: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """A query whose answer is kept: what it reads cannot change, and each takes a pass over all entries."""
    name = f"_{method.__name__}"

    @wraps(method)
    def answer(self: Any) -> _T:
        if name not in vars(self):
            setattr(self, name, method(self))
        return cast("_T", getattr(self, name))

    return answer


class Recording:
    """What happened in one run. Read-only: nothing in the file can be changed through it.

    `complete` is True if the file holds the whole run. `parts` are the processes of a joined recording; empty for a
    single process.

    `run` are the facts about it, each with its type; `meta` are the same as they are stored.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, *, foreign: bool = False) -> None:
        """Take over an open connection; `Recording.open` and `RecordingWriter.recording` are the ways in.

        What is `foreign`, as a file is that others may have made, is checked value by value.
        """
        self._file = OpenFile(connection, name)
        self._rows = self._file.rows
        self._answers: dict[Picked, tuple[Occurrence, ...]] = {}
        self._step_queues: dict[int, tuple[StepQueue, ...]] = {}
        try:
            if foreign:
                self._file.check()
            self._meta, self.run = self._file.meta()
            if not self.run.complete:
                self._file.settle(foreign=foreign)
                self._meta, self.run = self._file.meta()
        except BaseException:
            self.close()
            raise
        self.parts = self.run.parts
        self.complete = self.run.complete and all(part.complete for part in self.parts)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Recording:
        """Open a recording. One that was killed, or is still being written, opens with `complete` False.

        Raises RecordingError, in one line, if the file is missing, is not a recording, has another schema version, or
        is cut short or damaged.
        """
        return cls(open_readonly(Path(path)), str(path), foreign=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def meta(self) -> dict[str, object]:
        """The facts about the run as they are stored, without those that are not known."""
        return dict(self._meta)

    @cached_property
    def entry_count(self) -> int:
        """Calls recorded, with their detail or only as part of a total."""
        return max(self._detailed, self._totalled)

    @cached_property
    def dropped(self) -> int:
        """Calls whose detail was not kept. Waits, fallbacks, copies and refusals always keep theirs."""
        return max(0, self._totalled - self._detailed)

    @cached_property
    def sizeless(self) -> tuple[str, ...]:
        """Operators that have calls without sizes, because too many sizes had occurred before."""
        rows = self._rows(
            "SELECT DISTINCT o.name FROM signatures s JOIN operators o ON o.id = s.operator "
            "WHERE instr(s.inputs, '[...]') OR instr(s.outputs, '[...]') ORDER BY o.name"
        )
        return tuple(name for (name,) in rows)

    def steps(self) -> tuple[Step, ...]:
        """All steps, the last of which may be incomplete."""
        return tuple(Step(*row) for row in self._rows("SELECT step, start_ns, end_ns FROM steps ORDER BY step"))

    @cached_property
    def complete_steps(self) -> int:
        """The number of steps that reached their end."""
        return sum(step.complete for step in self.steps())

    @property
    def trains(self) -> bool:
        """Whether the steps are those of a training, not of a validation or an inference."""
        return self.run.loop != "inference"

    @cached_property
    def training_steps(self) -> int:
        """The complete steps of a training; 0 without a training."""
        return self.complete_steps if self.trains else 0

    @_computed_once
    def step_table(self) -> StepTable:
        """The phases of a step, in the typical step and in the first one."""
        return read_step_table(self._rows, self._walk, only_detailed=self.dropped > 0)

    @cached_property
    def _walk(self) -> Walk:
        # What it reads cannot change, it takes seconds in a long recording, and a report needs it more than once.
        return walk(self._rows, self.stream, self.site)

    def typical_step(self) -> Step | None:
        """The step of median length among those with the typical number of waits and fallbacks; None without a step."""
        return typical_step(self._rows, self._walk, self.step_table(), only_detailed=self.dropped > 0)

    @_computed_once
    def step_sums(self) -> tuple[StepSum, ...]:
        """All complete steps in brief."""
        return read_step_sums(self._rows, self._walk)

    def memory(self, resolution: int = 1000) -> tuple[MemorySample, ...]:
        """The device's memory over the run: the highest sample of each of `resolution` equal intervals."""
        return read_samples(self._rows, resolution)

    def calls(self) -> Iterator[Call]:
        """Every call with detail, in the order of time, read from the file one by one."""
        rows = self.stream(f"SELECT {', '.join(Call._fields)} FROM entries ORDER BY start_ns, id")
        # Not `Call._make`, which is Python: there may be a million, and the columns are those of the statement.
        return map(partial(tuple.__new__, Call), rows)

    def stream(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query over the tables of the file, read one by one."""
        return self._file.stream(statement)

    def signature(self, identity: int) -> Signature:
        """The operator, fate and tensors with this number in a call."""
        found = self._signatures.get(identity)
        if found is None:
            raise self._file.damaged(f"no signature {identity}")
        return found

    def module(self, identity: int) -> str:
        """The path of the module with this number in a call; empty outside of any module."""
        return self._modules.get(identity, "")

    def site(self, identity: int) -> Site:
        """The line of code with this number in a call."""
        return self._sites.get(identity) or Site("", 0)

    def fallbacks(self) -> tuple[Occurrence, ...]:
        """Operators that ran on the CPU, the most frequent first."""
        return self.occurrences(Picked(of=ON_CPU))

    def waits(self) -> tuple[Occurrence, ...]:
        """Places where the host waited for the GPU, including fallbacks and blocking copies."""
        return self.occurrences(Picked(condition="wait <> 0"))

    @_computed_once
    def queues(self) -> tuple[WaitQueue, ...]:
        """Places where the host waited, by line and kind of wait, with the queue before them; the most frequent first.

        Counts are those of the whole run; queues cover what is known of it (see `WaitQueue`).
        """
        begins = [part.begin_ns for part in self.parts[1:]]
        return read_queues(self._rows, self._walk, self.site, only_detailed=self.dropped > 0, begins=begins)

    def step_queues(self, step: Step) -> tuple[StepQueue, ...]:
        """The queues of one step with full detail, such as the typical one, each up to a wait."""
        known = self._step_queues.get(step.step)
        if known is None:
            through = walk(self._rows, self.stream, self.site, within(self._rows, step.step), step.start_ns)
            known = self._step_queues[step.step] = through.waits
        return known

    def marks(self, prefix: str) -> tuple[Occurrence, ...]:
        """Marks of anymps whose name starts with `prefix`, in the order of the run."""
        named = f"substr(o.name, 1, {len(prefix)}) = '{_quoted(prefix)}'"
        return self.occurrences(Picked(of=f"s.fate = {Fate.MARK:d} AND {named}"))

    def noted(self, what: str) -> tuple[Noted, ...]:
        """Marks `anymps::<what> {"fact": value}`, in the order of the run."""
        named = f"substr(o.name, 1, {len(what) + 9}) = 'anymps::{_quoted(what)} '"
        if not self._rows(f"SELECT 1 FROM operators o WHERE {named} LIMIT 1"):
            return ()
        others = self._rows(
            "SELECT e.sequence FROM entries e JOIN signatures s ON s.id = e.signature JOIN operators o "
            f"ON o.id = s.operator WHERE e.flags & {Flag.PAIR:d} AND {named} GROUP BY 1 ORDER BY MIN(e.id)"
        )
        return tuple(
            Noted(found, self._file.read(read_facts, what, found.operator.partition(" ")[2]), self.site(other))
            for (other,) in others
            for found in self.occurrences(Picked(named, f"e.flags & {Flag.PAIR:d} AND e.sequence = {other:d}"))
        )

    def optimizers(self) -> tuple[Optimizer, ...]:
        """The optimizers that stepped, in the order of the run."""
        return tuple(self._file.read(read_optimizer, noted) for noted in self.noted("optimizer"))

    def copies(self) -> tuple[Occurrence, ...]:
        """Copies between CPU and device, including single values; not those within the device."""
        return self.occurrences(Picked(condition=f"direction IN ({Direction.CPU_TO_MPS:d}, {Direction.MPS_TO_CPU:d})"))

    def uses_of(self, operators: Iterable[str]) -> tuple[Occurrence, ...]:
        """Where certain operators (`aten::native_dropout`) ran, by name and place."""
        names = tuple(operators)
        return self.occurrences(Picked(of=f"o.name IN ({', '.join('?' * len(names))})", values=names))

    def with_dtype(self, dtype: str) -> tuple[Occurrence, ...]:
        """Where operators on mps took a tensor of a dtype (`float16`)."""
        return self.occurrences(Picked(of="instr(s.inputs, ?)", condition=ON_MPS, values=(f'"{dtype}[',)))

    def hazards(self) -> tuple[Occurrence, ...]:
        """Calls that meet a known bug of MPS; `operator` is the mark, `anymps::hazard.<id> <operator>`."""
        return tuple(met for met in self.hazards_anywhere() if not met.operator.startswith(_ELSEWHERE))

    def hazards_anywhere(self) -> tuple[Occurrence, ...]:
        """Those, and calls that meet a bug of another release, macOS or GPU: their ids begin with `ELSEWHERE`."""
        return self.occurrences(Picked(of=f"s.fate = {Fate.MARK:d}", condition=f"flags & {Flag.HAZARD:d}"))

    @_computed_once
    def distinct_calls(self) -> tuple[tuple[Signature, Site], ...]:
        """Every signature that was called, with each line that called it; without marks of anymps."""
        found = self._rows(
            f"SELECT DISTINCT t.signature, t.site FROM {self._counts} t JOIN signatures s ON s.id = t.signature "
            f"WHERE s.fate <> {Fate.MARK:d} ORDER BY t.site, t.signature"
        )
        return tuple((self.signature(signature), self.site(site)) for signature, site in found)

    def unsafe_copies(self) -> tuple[UnsafeCopy, ...]:
        """Non_blocking copies whose host side was touched before a wait, in the order of the run."""
        if not self._rows("SELECT 1 FROM operators WHERE substr(name, 1, 13) = 'anymps::copy.' LIMIT 1"):
            return ()
        found = []
        for mark, touched, copy, wait, count in self._rows(
            "SELECT o.name, e.site, e.sequence & 4294967295, e.sequence >> 32, COUNT(*) FROM entries e "
            "JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator "
            f"WHERE e.flags & {Flag.UNSAFE_COPY:d} GROUP BY o.name, e.site, e.sequence ORDER BY MIN(e.id)"
        ):
            kind, _, operator = str(mark).removeprefix("anymps::copy.").partition(" ")
            found.append(UnsafeCopy(kind, operator, self.site(touched), self.site(copy), self.site(wait), count))
        return tuple(found)

    def refusals(self) -> tuple[Refusal, ...]:
        """What MPS refused, in the order of the run."""
        found = self._rows(
            "SELECT r.kind, r.error, r.message, COALESCE(o.name, ''), r.detail, r.site, r.origin FROM refusals r "
            "LEFT JOIN entries e ON e.id = r.entry LEFT JOIN signatures s ON s.id = e.signature "
            "LEFT JOIN operators o ON o.id = s.operator ORDER BY r.id"
        )
        result = []
        for kind, error, message, operator, text, at, origin in found:
            detail = self._file.read(read_object, text)
            name = str(detail.get("operator") or operator)
            places = self.site(at), self.site(origin)
            result.append(Refusal(RefusalKind(kind), error, message, name, *places, detail))
        return tuple(result)

    @_computed_once
    def operators(self) -> tuple[OperatorUse, ...]:
        """Calls by operator and fate, the most frequent first, without marks of anymps."""
        return read_operators(self._rows, self._counts)

    @_computed_once
    def lines(self) -> tuple[Line, ...]:
        """The run line by line, by file and line; calls without a known line come last."""
        return read_lines(self._rows, self._counts, self.site, self.noted("fused"))

    @cached_property
    def lines_by_process(self) -> LinesByProcess:
        """In which of its `parts` each line called something, waited, or was refused."""
        begins = [part.begin_ns for part in self.parts]
        return read_lines_by_process(self._rows, self._sites, begins, whole=self.dropped == 0)

    @cached_property
    def lines_by_loop(self) -> LinesByProcess:
        """The same by the loops of a script that trains several times, one after the other; no steps with one loop."""
        begins = loop_begins(self._rows)
        whole = self.dropped == 0
        return read_lines_by_process(self._rows, self._sites, begins, whole=whole) if begins else LinesByProcess()

    @cached_property
    def memory_story(self) -> MemoryStory:
        """Every buffer, and what held the memory at its peak."""
        rows = self.stream("SELECT * FROM allocations ORDER BY id")
        ((last_step,),) = self._rows("SELECT COALESCE(MAX(step), 0) FROM allocations")
        operators = dict(self._rows("SELECT s.id, o.name FROM signatures s JOIN operators o ON o.id = s.operator"))
        cut_short = not self.complete or bool(self.run.ending.status)
        dropped = bool(self.run.allocations_dropped)
        return tell(rows, last_step, operators, self._modules, self._sites, dropped, cut_short)

    @cached_property
    def _detailed(self) -> int:
        return int(self._rows("SELECT COUNT(*) FROM entries")[0][0])

    @cached_property
    def _totalled(self) -> int:
        return int(self._rows("SELECT COALESCE(SUM(count), 0) FROM totals")[0][0])

    @property
    def _counts(self) -> str:
        """The table that counts every call: the totals, or the entries of a recording whose totals lag behind."""
        if self._totalled >= self._detailed:
            return "totals"
        return "(SELECT signature, site, wait, direction, 1 AS count, duration_ns, moved_bytes FROM entries)"

    @cached_property
    def _sites(self) -> dict[int, Site]:
        files: dict[str, dict[int, str]] = {}  # all lines that the recording holds of each file
        rows = self._rows("SELECT * FROM sites")
        sites = {identity: Site(*(*columns, files.setdefault(columns[0], {}))) for identity, *columns in rows}
        for site in sites.values():
            if site.around:
                files[site.file].update(enumerate(site.around.split("\n"), site.first))
        return sites

    @cached_property
    def _signatures(self) -> dict[int, Signature]:
        read = self._file.read
        return {
            identity: Signature(
                name, Fate(fate), read(read_texts, inputs), read(read_texts, outputs), read(read_form, form)
            )
            for identity, name, fate, inputs, outputs, form in self._rows(
                "SELECT s.id, o.name, s.fate, s.inputs, s.outputs, s.form FROM signatures s "
                "JOIN operators o ON o.id = s.operator"
            )
        }

    @cached_property
    def _modules(self) -> dict[int, str]:
        return dict(self._rows("SELECT id, path FROM modules"))

    def occurrences(self, calls: Picked) -> tuple[Occurrence, ...]:
        """The calls for which a condition in SQL holds, by the tables of the file's format."""
        # Rules and reports ask the same again, and each answer takes a pass over all entries.
        known = self._answers.get(calls)
        if known is None:
            known = read_occurrences(self._rows, *calls, self.complete_steps, self._modules, self.site)
            self._answers[calls] = known
        return known


def _quoted(text: str) -> str:
    """A text as SQL has it between quotes."""
    return text.replace("'", "''")
