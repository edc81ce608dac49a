"""Waits that are no operators, by stand-ins for torch's bindings: synchronize, empty_cache, events; and warnings."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from anymps.capture.dispatch._copies import PendingCopies
from anymps.capture.dispatch._hazards import Event
from anymps.capture.dispatch._refusals import DELAYED_ERROR
from anymps.capture.dispatch._stand_ins import StandIns
from anymps.capture.dispatch._tape import PythonTape
from anymps.record import Wait
from anymps.rules.faults import Check
from anymps.rules.texts import fallback_warning

_SYNCHRONIZE = ("_mps_deviceSynchronize", "_accelerator_synchronizeDevice")
_EMPTY_CACHE = ("_mps_emptyCache", "_accelerator_emptyCache")
_OURS = str(Path(__file__).parents[2]) + os.sep
_OPERATOR = "%OP%"
_FALLBACK = re.compile(re.escape(fallback_warning(_OPERATOR).text).replace(re.escape(_OPERATOR), "(?P<name>.+?)"))


class Waits:
    """The stand-ins of one recording."""

    def __init__(
        self,
        tape: PythonTape,
        copies: PendingCopies,
        waited: Callable[[int | None], None],
        fell_back: Callable[[str], None],
        raised: Callable[[Exception], None],
        fault: Callable[[Check], None],
    ) -> None:
        """What to tell: that the host has waited (for all copies, or for the first ones), which operators torch warns
        of as fallbacks, what a wait raised, and that a measurement would meet a known fault of events."""
        self._tape = tape
        self._copies = copies
        self._waited = waited
        self._fell_back = fell_back
        self._raised = raised
        self._stand_ins = StandIns()
        self._fault = fault
        self._events: dict[int, Event] = {}

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
        self._stand_ins.put(warnings, "showwarning", self._warning)

    def remove(self) -> None:
        """Leave torch as it was."""
        self._stand_ins.remove()

    def _synchronizing(self, call: Any) -> Callable[..., Any]:
        def synchronize(*args: Any) -> Any:
            self._wait("anymps::synchronize", Wait.SYNCHRONIZE, call, *args)
            self._waited(None)

        return synchronize

    def _emptying(self, call: Any) -> Callable[..., Any]:
        def empty_cache(*args: Any) -> Any:
            self._wait("anymps::empty_cache", Wait.EMPTY_CACHE, call, *args)
            self._waited(None)

        return empty_cache

    def _acquiring(self, call: Any) -> Callable[..., Any]:
        def acquire(timing: bool) -> Any:
            event = call(timing)
            self._events[event] = Event(bool(timing))
            return event

        return acquire

    def _releasing(self, call: Any) -> Callable[..., Any]:
        def release(event: int) -> Any:
            self._events.pop(event, None)
            return call(event)

        return release

    def _recording(self, call: Any) -> Callable[..., Any]:
        def record(event: int) -> Any:
            known = self._events.setdefault(event, Event(None))
            known.record(self._copies.count)
            known.site = self._tape.sites.current()
            return call(event)

        return record

    def _waiting(self, call: Any) -> Callable[..., Any]:
        def synchronize(event: int) -> Any:
            known = self._events.get(event)
            if known is None or known.recorded is None:
                return self._call(call, event)
            known.synchronized = True
            result = self._wait("anymps::event_wait", Wait.EVENT, call, event)
            self._waited(known.recorded)
            return result

        return synchronize

    def _asking(self, call: Any) -> Callable[..., Any]:
        def query(event: int) -> Any:
            complete = call(event)
            known = self._events.get(event)
            if complete and known is not None and known.recorded is not None:
                self._waited(known.recorded)  # whoever asks until the answer is yes has waited
            return complete

        return query

    def _measuring(self, call: Any) -> Callable[..., Any]:
        def elapsed_time(start: int, end: int) -> Any:
            known = self._events.setdefault(end, Event(None))
            check = known.check()
            known.measured = True
            if check is not None:
                self._fault(check)
            milliseconds = self._wait("anymps::event_wait", Wait.EVENT, call, start, end)
            self._waited(self._copies.count)
            self._measured(start, milliseconds)
            return milliseconds

        return elapsed_time

    def _measured(self, start: int, milliseconds: float) -> None:
        """The program has asked how long the device took between two events: the one number of the device's own."""
        first = self._events.get(start)
        begun = first.site if first is not None else 0
        taken = round(milliseconds * 1e6)
        self._tape.note_pair("anymps::device_time {}", self._tape.sites.current(), begun, duration=taken)

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
            self._tape.mark(name, 0, start, self._tape.clock_ns(), kind)
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

    def _warning(self, show: Any) -> Callable[..., Any]:
        def showwarning(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **named: Any) -> Any:
            found = _FALLBACK.match(str(message))
            if found is not None:
                self._fell_back(found["name"])
            if filename.startswith(_OURS):  # torch counts frames, and one of ours stood in between
                filename, lineno = _caller_of(filename, lineno)
            return show(message, category, filename, lineno, *rest, **named)

        return showwarning


def _caller_of(file: str, line: int) -> tuple[str, int]:
    """Where the frame of ours that runs this line, or those around it, were called from."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (file, line):
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return (file, line) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
