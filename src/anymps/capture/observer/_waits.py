"""Waits that are not operators, recorded by wrappers around torch's bindings: synchronize, empty_cache, events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from anymps.capture._core import Undo, stand_in
from anymps.capture.observer._refusals import DELAYED_ERROR
from anymps.record import Wait

if TYPE_CHECKING:
    from anymps.device import NativeCore

_FOR_ALL = {
    "_mps_deviceSynchronize": ("anymps::synchronize", Wait.SYNCHRONIZE),
    "_accelerator_synchronizeDevice": ("anymps::synchronize", Wait.SYNCHRONIZE),
    "_mps_emptyCache": ("anymps::empty_cache", Wait.EMPTY_CACHE),
    "_accelerator_emptyCache": ("anymps::empty_cache", Wait.EMPTY_CACHE),
}
"""Functions that wait for all that was queued: their marks, and the kinds of wait."""


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


class BindingWrappers:
    """Functions in the place of torch's bindings while a recording runs: those that wait leave a mark."""

    def __init__(self, tape: NativeCore, raised: Callable[[Exception], None]) -> None:
        """`raised` gets what a wait raised."""
        self._tape = tape
        self._raised = raised
        self._undo: list[Undo] = []
        self._events: dict[int, _Event] = {}

    def install(self) -> None:
        """Start to watch."""
        for name in _FOR_ALL:
            self._replace(name, self._waiting_for_all(*_FOR_ALL[name]))
        for name, wrap in (
            ("_mps_acquireEvent", self._acquiring),
            ("_mps_releaseEvent", self._releasing),
            ("_mps_recordEvent", self._recording),
            ("_mps_synchronizeEvent", self._waiting),
            ("_mps_queryEvent", self._asking),
            ("_mps_elapsedTimeOfEvents", self._measuring),
        ):
            self._replace(name, wrap)

    def remove(self) -> None:
        """Leave torch as it was."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, name: str, wrap: Callable[[Any], Callable[..., Any]]) -> None:
        original = getattr(torch._C, name, None)
        if original is not None:
            self._undo.append(stand_in(torch._C, name, wrap(original)))

    def _waiting_for_all(self, mark: str, kind: Wait) -> Callable[[Any], Callable[..., Any]]:
        def watched(call: Any) -> Callable[..., Any]:
            def wait(*args: Any) -> Any:
                self._wait(mark, kind, call, *args)
                self._tape.host_waited(None)

            return wait

        return watched

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
