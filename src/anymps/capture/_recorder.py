"""Capture: a source of the native recorder, hooks around it, and the file that it is written to as it runs."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from anymps._errors import EnableError, RecordingError
from anymps._text import tell
from anymps.capture._core import Core
from anymps.capture._device_choice import device_choice, note_device_types
from anymps.capture._endings import ending_of, shown_file
from anymps.capture._hooks import Hooks, drain_modules
from anymps.capture._looks import Looks
from anymps.capture._origins import defaults_behind, find_caller, find_origin
from anymps.capture._part import HeldMarks, Part, Progress, check_steps
from anymps.capture._run_facts import choose_source, closing_facts, core_of, machine_facts
from anymps.device import children_used_mps, real_calls, state
from anymps.record import Fate, RefusalKind
from anymps.record.format import ALLOCATION, Row
from anymps.record.loop import Rounds
from anymps.source import quote_file

if TYPE_CHECKING:
    from anymps.record import Recording, RecordingWriter

DETAIL_LIMIT = 2_000_000
"""Entries kept one by one (128 MB); later ones are counted in the totals, except waits, copies and refusals."""

ALLOCATION_LIMIT = 250_000
"""Allocations kept one by one (24 MB), some hundred steps of a small model; later ones are only counted."""

FLUSH_SECONDS = 1.0
"""What a killed process can lose at most."""

_current: Capture | None = None


def site_row(site: Row) -> Row:
    """The site, `(id, file, line, function, via)` on the tape, with what its file says there."""
    number, file, line, function, via = site
    quote = quote_file(file, line)
    return number, shown_file(file), line, function, quote.source, via, quote.first, quote.around, quote.comments


class Capture:
    """Records everything that reaches the device between `__enter__` and `__exit__`. One at a time in a process."""

    _habits = True

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        script: str = "",
        argv: Sequence[str] = (),
        detail_limit: int = DETAIL_LIMIT,
        allocation_limit: int = ALLOCATION_LIMIT,
        source: str | None = None,
        steps: tuple[int, int] | None = None,
    ) -> None:
        self._path = path
        self._rounds = Rounds()
        asked = check_steps(steps) if steps is not None else None
        self._part = Part(asked, self._rounds, self._begin_part, self._end_part) if asked is not None else None
        self._source = source
        self._script = script
        self._file = os.path.abspath(script) if script else ""  # the program may change its folder
        self._argv = list(argv)
        self._limit = detail_limit
        self._allocation_limit = allocation_limit
        self._writer: RecordingWriter | None = None
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._failure: RecordingError | None = None
        self._operators = 0
        self._refusals: list[Row] = []
        self._delayed: dict[int, Row] = {}
        self._seconds = 0.0  # of a part that is over
        self._begin_ns = 0  # of a part
        self._optimizer_ns = 0.0  # between the last steps of optimizers
        self._looks = Looks()
        self._reached = False  # whether any operator ran on mps
        self._real_before: Counter[str] = Counter()  # calls that real kernels computed before it began
        self._real_after: Counter[str] | None = None  # and up to the end of a part

    def __enter__(self) -> Capture:
        """Start.

        Raises EnableError without a device, for a source that it does not have, or while another recording runs, and
        RecordingError if the file cannot be written.
        """
        global _current
        current = state()
        if current is None:
            raise EnableError("anymps: nothing to record yet; call anymps.enable() first")
        if _current is not None:
            raise EnableError("anymps: a recording is already running in this process")
        self._source = choose_source(self._source, current)
        from anymps.record import RecordingWriter

        self._writer = RecordingWriter(self._path, self._facts())
        self._started = time.monotonic()
        self.core, assign = core_of(self._source, self.flush)
        waits = self._part is not None and not self._part.begun
        self._held = HeldMarks(self.core) if waits else None
        marks, looks = cast("Core | None", self._held), self._looks if self._on_virtual else None
        self._hooks = Hooks(
            self.core, assign, self._rounds, habits=self._habits, marks=marks, part=self._part, looks=looks
        )
        copied = self._hooks.habits.copied if self._hooks.habits is not None else None
        self.core.set_callbacks(self._note_refusal, self._note_surfaced, copied, self._hooks.number_of)
        self.core.ledger_start(self._allocation_limit)
        self.core.tape_start(self._limit)
        self.core.tape_pause(waits)
        self._hooks.install()
        self._real_before = real_calls() or Counter()
        _current = self
        os.register_at_fork(after_in_child=self._in_child)
        with suppress(RuntimeError):  # without room for another thread, what is on the tape is written at the end
            threading.Thread(target=self._flush_now_and_then, name="anymps-flush", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._closed.is_set():
            ending: dict[str, object] = {"status": 0}
            if error is not None:
                ending = ending_of(error)
            self.close(ending)

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call of the program's that is one step, whatever it calls."""
        start = self.core.clock_ns()
        yield
        self._hooks.note_call(start)

    @property
    def steps_seen(self) -> int:
        """How many training steps the run has made, where only a part is recorded; else 0."""
        return self._rounds.number if self._part is not None else 0

    @property
    def progress(self) -> Progress:
        """How far the run is. Takes what is on the tape to the file."""
        with self._lock:
            self.flush()
            waits = sum(count for *_, wait, _, count, _, _ in self.core.tape_totals() if wait)
            allocated, peak, *_ = self.core.memory_statistics()["allocated"]
            return Progress(
                steps=self._rounds.number,
                recorded=self._part.recorded if self._part is not None else self._rounds.number,
                waits=waits,
                step_ns=self._optimizer_ns * self._rounds.steps / max(1, self._rounds.number),
                allocated=allocated,
                peak=peak,
                begun=self.has_begun,
                over=self.is_over,
            )

    @property
    def is_over(self) -> bool:
        """Whether the part of the run that was to be recorded is over. Of a whole run it never is."""
        return self._part is not None and self._part.done

    @property
    def has_begun(self) -> bool:
        """Whether anything could be recorded yet: the first step of a part may not have come."""
        return self._part is None or self._part.begun

    def _begin_part(self) -> None:
        """The first step of the part is about to begin, on the program's thread."""
        with self._lock:
            if self._writer is None or self._closed.is_set():
                return
            self._started = time.monotonic()
            self._looks.begin_part()
            self._real_before = real_calls() or Counter()
            self.core.ledger_start(self._allocation_limit)  # what died before is no concern of the part's
            self.core.tape_pause(False)
            if self._held is not None:
                self._held.release()
            with self._storing("The run continues."):
                self._begin_ns = self.core.clock_ns()
                self._writer.set_meta("begin_ns", self._begin_ns)
            self._note_part()

    def _end_part(self) -> None:
        """The last step of the part is over. The hooks stay: one of them calls this."""
        self._seconds = time.monotonic() - self._started
        self._real_after = real_calls()
        self._note_source()
        self.core.tape_pause(True)
        self._note_part()

    def _note_source(self) -> None:
        """Note what the program's source says of a device that the run used."""
        if self._habits and (self._reached or self.core.ledger_state()[0]):
            note_device_types(self.core, self._file)

    def _note_part(self) -> None:
        """Say which steps the part has: what was asked for, as a rule."""
        if self._part is not None:
            with self._storing("The run continues."):
                self.note_fact("steps", [self._part.first, self._part.last])

    @property
    def recording(self) -> Recording:
        """What was recorded so far."""
        if self._writer is None:
            raise EnableError("anymps: the recording has not started")
        if not self._closed.is_set():
            self.flush()
        return self._writer.recording()

    @property
    def failure(self) -> RecordingError | None:
        """Why the recording ended before the run did, such as a full disk; None if it did not."""
        return self._failure

    def note_fact(self, key: str, value: object) -> None:
        """Set one fact about the run in the recording."""
        with self._lock:
            if self._writer is not None and not self._closed.is_set():
                self._writer.set_meta(key, value)

    def flush(self) -> None:
        """Take what is on the tape to the file. A file that takes no more ends the recording, and not the run."""
        with self._lock:
            if self._writer is None or self._closed.is_set():
                return
            with self._storing("The run continues; what was recorded before can be read."):
                self._drain()
                if self._path is not None:
                    self._writer.commit()

    def close(self, ending: Mapping[str, object]) -> None:
        """Stop, write the rest, and say in the file how the run ended. Closing twice is harmless.

        If the file takes no more, it stays an incomplete recording of what was written before.
        """
        global _current
        with self._lock:
            if self._writer is None or self._closed.is_set():
                return
            if self.has_begun and not self.is_over:
                self._note_source()
            self._hooks.remove()
            self.core.tape_stop()  # it stood in for some of torch's functions before the hooks did
            self.core.set_callbacks(None, None, None, None)
            with self._storing("What was recorded before can be read."):
                self._drain(at_end=True)
                self._writer.set_meta("ending", dict(ending))
                if self._part is not None:
                    self._writer.set_meta("steps", [self._part.first, self._part.last])
                    self._writer.set_meta("steps_seen", self._rounds.number)
                if self._habits and self.has_begun and not self._reached and not self.core.ledger_state()[0]:
                    if children_used_mps():
                        self._writer.set_meta("used_by_children", True)
                    else:
                        self._writer.set_meta("device_choice", device_choice(self._file))
                if self._on_virtual:
                    for key, value in self._looks.end().items():
                        self._writer.set_meta(key, value)
                for key, value in closing_facts().items():
                    self._writer.set_meta(key, value)
                self._writer.set_meta("allocations_dropped", self.core.ledger_state()[1])
                real = self._real_after if self._real_after is not None else real_calls()
                if real is not None:
                    self._writer.set_meta("real_calls", dict(real - self._real_before))
                    current = state()
                    self._writer.set_meta("kernels_torch", current.kernels_torch if current is not None else "")
                self._writer.set_meta("wall_seconds", self._seconds or time.monotonic() - self._started)
                self._writer.close()
            self._closed.set()
            _current = None

    @contextmanager
    def _storing(self, consequence: str) -> Iterator[None]:
        """Within this, a file that takes no more ends the recording.

        The tape goes on and is emptied into nothing: its hooks cannot be taken off from another thread than the
        script's, and what nobody empties grows.
        """
        try:
            yield
        except RecordingError as error:
            assert self._writer is not None
            self._failure = error
            self._writer.abandon()
            self._choose()
            self._tell(f"recording stopped: {error}. {consequence}")

    def _choose(self) -> None:
        """Whether plain calls are written at all."""
        self.core.tape_sparse(self._failure is not None)

    def _tell(self, line: str) -> None:
        with suppress(OSError, ValueError):  # standard error may be closed by now
            tell(f"anymps: {line}")

    def _facts(self) -> dict[str, object]:
        part = {} if self._part is None else {"steps": [self._part.first, self._part.last]}
        run = {"script": self._script, "arguments": self._argv, "source": self._source, "rounds": self._habits}
        speeds = self._looks.begin() if self._on_virtual else {}  # else the Mac says them
        return {**machine_facts(), **speeds, **run, **part}

    @property
    def _on_virtual(self) -> bool:
        current = state()
        return current is not None and current.virtual

    def _drain(self, at_end: bool = False) -> None:
        entries, signatures, steps, sites, names, dropped, rounds = self.core.tape_drain(self._operators)
        operators = [(self._operators + index, name) for index, name in enumerate(names)]
        self._reached |= any(fate != Fate.MARK for _, _, fate, *_ in signatures)
        self._operators += len(names)
        if steps:
            self._optimizer_ns = (steps[-1][2] - max(steps[0][1], self._begin_ns)) / len(steps)
        refusals, self._refusals = self._refusals, []
        rows = {
            "operators": operators,
            "signatures": signatures,
            "sites": sites,
            "modules": list(drain_modules(self._hooks)),
            "steps": steps,
            "rounds": rounds,
            "refusals": refusals,
        }
        self._store(entries, rows, dropped)
        if self._allocation_limit:
            assert self._writer is not None
            # At the end those still alive, too.
            self._writer.spool(self.core.ledger_drain(at_end), ALLOCATION)

    def _store(self, entries: bytes, rows: Mapping[str, list[Row]], dropped: int) -> None:
        """Keep what was taken off the tape: packed entries, new rows by table, and how many calls were only counted."""
        self._write(entries, rows)
        assert self._writer is not None
        self._writer.add("totals", self.core.tape_totals())

    def _write(self, entries: bytes, rows: Mapping[str, list[Row]]) -> None:
        assert self._writer is not None
        for table, new in rows.items():
            self._writer.add(table, map(site_row, new) if table == "sites" else new)
        self._writer.spool(entries)

    def _flush_now_and_then(self) -> None:
        while not self._closed.wait(FLUSH_SECONDS):
            self.flush()

    def _in_child(self) -> None:
        """A forked child goes on without recording: the file and the flushing thread belong to the parent."""
        self._lock = threading.RLock()  # the flushing thread, which is not here, may have held it
        if not self._closed.is_set():
            self._hooks.remove()
            self.core.tape_stop()  # it stood in for some of torch's functions before the hooks did
            self._closed.set()

    def _note_refusal(self, number: int, kind: str, operator: str, error: str, message: str, culprit: Any) -> None:
        # A bad index is reported by a later wait, when the frames of the call that was given it are gone.
        delayed = kind == RefusalKind.INDEX.value
        origin = None if delayed else find_origin(culprit, kind, self.core.is_internal)
        detail: dict[str, object] = {"operator": operator, "event": self.core.ledger_state()[0]}
        origin_site = 0
        if origin is not None:
            detail |= {"name": origin.name, "expression": origin.expression, "numpy_default": origin.numpy_default}
            detail |= {"array": True} if origin.array else {}
            detail |= {"dtype": True} if origin.dtype else {}
            detail |= {"kept": origin.kept} if origin.kept else {}
            if origin.line:
                origin_site = self.core.site(origin.file, origin.line, origin.function, "")
        detail |= defaults_behind(kind)
        caller = None if delayed else find_caller(self.core.is_internal)
        if caller is not None:
            detail["caller"] = caller
        row: Row = (number, 0, kind, error, message, self.core.current_site(), origin_site, detail)
        if delayed:
            self._delayed[number] = row
        self._refusals.append(row)

    def _note_surfaced(self, number: int) -> None:
        """The delayed error of that number is raised by the calling line: the refusal's row gets it as its origin."""
        row = self._delayed.get(number)
        self._delayed.clear()  # the device forgets the others
        if row is not None:
            self._refusals.append((*row[:6], self.core.current_site(), row[7]))
