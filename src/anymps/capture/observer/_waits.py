"""Waits that are not operators, recorded by wrappers around torch's bindings: synchronize, empty_cache, events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from anymps.capture.observer._refusals import DELAYED_ERROR
from anymps.record import Wait

_SYNCHRONIZE = ("_mps_deviceSynchronize", "_accelerator_synchronizeDevice")
_EMPTY_CACHE = ("_mps_emptyCache", "_accelerator_emptyCache")


class StandIns:
    """Functions of torch and Python that are replaced while a recording runs, and put back afterwards."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, wrap: Callable[[Any], Callable[..., Any]]) -> None:
        """Replace `owner.name` by what `wrap` makes of it; nothing where there is none in this torch."""
        original = getattr(owner, name, None)
        if original is None:
            return
        replacement = wrap(original)
        setattr(owner, name, replacement)

        def undo() -> None:
            if getattr(owner, name) is replacement:  # else somebody has replaced it in turn
                setattr(owner, name, original)

        self._undo.append(undo)

    def remove(self) -> None:
        """Put all back, the last first."""
        while self._undo:
            self._undo.pop()()


class Tape(Protocol):
    """What the stand-ins write on and ask: these functions of the native module."""

    def clock_ns(self) -> int: ...

    def mark(self, name: str, phase: int, start: int, end: int, wait: int, /) -> object: ...

    def note_pair(self, name: str, site: int, other: int, duration: int, /) -> object: ...

    def current_site(self) -> int: ...

    def copies_started(self) -> int: ...

    def host_waited(self, copies: int | None, /) -> object: ...

    def note_event_fault(self, timing: bool, recorded: bool, measured: bool, synchronized: bool, /) -> object: ...


@dataclass(slots=True)
class _Event:
    """What is known of an event; one that is older than the recording is taken for timed and recorded."""

    timing: bool = True
    recorded: bool = True
    copies: int | None = None
    """How many had started when it was recorded; None if that was not seen."""
    measured: bool = False
    synchronized: bool = False
    site: int = 0
    """Where it was recorded last."""


class Waits:
    """The stand-ins of one recording."""

    def __init__(self, tape: Tape, raised: Callable[[Exception], None]) -> None:
        """`raised` gets what a wait raised."""
        self._tape = tape
        self._raised = raised
        self._stand_ins = StandIns()
        self._events: dict[int, _Event] = {}

    def install(self) -> None:
        """Start to watch."""
        for name in _SYNCHRONIZE:
            self._stand_ins.put(torch._C, name, self._synchronizing)
        for name in _EMPTY_CACHE:
            self._stand_ins.put(torch._C, name, self._emptying)
        for name, wrap in (
            ("_mps_acquireEvent", self._acquiring),
            ("_mps_releaseEvent", self._releasing),
            ("_mps_recordEvent", self._recording),
            ("_mps_synchronizeEvent", self._waiting),
            ("_mps_queryEvent", self._asking),
            ("_mps_elapsedTimeOfEvents", self._measuring),
        ):
            self._stand_ins.put(torch._C, name, wrap)

    def remove(self) -> None:
        """Leave torch as it was."""
        self._stand_ins.remove()

    def _synchronizing(self, call: Any) -> Callable[..., Any]:
        def synchronize(*args: Any) -> Any:
            self._wait("anymps::synchronize", Wait.SYNCHRONIZE, call, *args)
            self._tape.host_waited(None)

        return synchronize

    def _emptying(self, call: Any) -> Callable[..., Any]:
        def empty_cache(*args: Any) -> Any:
            self._wait("anymps::empty_cache", Wait.EMPTY_CACHE, call, *args)
            self._tape.host_waited(None)

        return empty_cache

    def _acquiring(self, call: Any) -> Callable[..., Any]:
        def acquire(timing: bool) -> Any:
            event = call(timing)
            self._events[event] = _Event(bool(timing), recorded=False)
            return event

        return acquire

    def _releasing(self, call: Any) -> Callable[..., Any]:
        def release(event: int) -> Any:
            self._events.pop(event, None)
            return call(event)

        return release

    def _recording(self, call: Any) -> Callable[..., Any]:
        def record(event: int) -> Any:
            known = self._events.setdefault(event, _Event())
            known.recorded, known.copies = True, self._tape.copies_started()
            known.measured = known.synchronized = False
            known.site = self._tape.current_site()
            return call(event)

        return record

    def _waiting(self, call: Any) -> Callable[..., Any]:
        def synchronize(event: int) -> Any:
            known = self._events.get(event)
            if known is None or known.copies is None:
                return self._call(call, event)
            known.synchronized = True
            result = self._wait("anymps::event_wait", Wait.EVENT, call, event)
            self._tape.host_waited(known.copies)
            return result

        return synchronize

    def _asking(self, call: Any) -> Callable[..., Any]:
        def query(event: int) -> Any:
            complete = call(event)
            known = self._events.get(event)
            if complete and known is not None and known.copies is not None:
                self._tape.host_waited(known.copies)  # whoever asks until the answer is yes has waited
            return complete

        return query

    def _measuring(self, call: Any) -> Callable[..., Any]:
        def elapsed_time(start: int, end: int) -> Any:
            known = self._events.setdefault(end, _Event())
            self._tape.note_event_fault(known.timing, known.recorded, known.measured, known.synchronized)
            known.measured = True
            milliseconds = self._wait("anymps::event_wait", Wait.EVENT, call, start, end)
            self._tape.host_waited(self._tape.copies_started())
            self._measured(start, milliseconds)
            return milliseconds

        return elapsed_time

    def _measured(self, start: int, milliseconds: float) -> None:
        """The program has asked how long the device took between two events: the one number of the device's own."""
        first = self._events.get(start)
        begun = first.site if first is not None else 0
        taken = round(milliseconds * 1e6)
        self._tape.note_pair("anymps::device_time {}", self._tape.current_site(), begun, taken)

    def _wait(self, name: str, kind: Wait, call: Any, *args: Any) -> Any:
        """Make a call that waits, and write a mark that lasts as long as the host was in it."""
        start = self._tape.clock_ns()
        late: Exception | None = None
        result = None
        try:
            result = call(*args)
        except Exception as error:
            late = error
        if late is None or isinstance(late, DELAYED_ERROR):
            self._tape.mark(name, 0, start, self._tape.clock_ns(), int(kind))
        if late is not None:
            self._raised(late)
            raise late
        return result

    def _call(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            self._raised(error)
            raise
