"""Waits that are no operators, by stand-ins for torch's bindings: synchronize, empty_cache, events; and warnings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from anymps.record._capture_copies import PendingCopies
from anymps.record._capture_stand_ins import StandIns
from anymps.record._capture_tape import PythonTape
from anymps.record._vocabulary import Wait
from anymps.rules import fallback_warning

_SYNCHRONIZE = ("_mps_deviceSynchronize", "_accelerator_synchronizeDevice")
_EMPTY_CACHE = ("_mps_emptyCache", "_accelerator_emptyCache")
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
    ) -> None:
        """What to tell: that the host has waited (for all copies, or for the first ones), which operators torch warns
        of as fallbacks, and what a wait raised."""
        self._tape = tape
        self._copies = copies
        self._waited = waited
        self._fell_back = fell_back
        self._raised = raised
        self._stand_ins = StandIns()
        self._events: dict[int, int] = {}  # recorded ones, and how many copies had started then

    def install(self) -> None:
        """Start to watch."""
        for name in _SYNCHRONIZE:
            self._stand_ins.put(torch._C, name, self._synchronizing)
        for name in _EMPTY_CACHE:
            self._stand_ins.put(torch._C, name, self._emptying)
        self._stand_ins.put(torch._C, "_mps_recordEvent", self._recording)
        self._stand_ins.put(torch._C, "_mps_synchronizeEvent", self._waiting)
        self._stand_ins.put(torch._C, "_mps_queryEvent", self._asking)
        self._stand_ins.put(torch._C, "_mps_elapsedTimeOfEvents", self._measuring)
        self._stand_ins.put(warnings, "showwarning", self._warning)

    def remove(self) -> None:
        """Leave torch as it was."""
        self._stand_ins.remove()

    def _synchronizing(self, call: Any) -> Callable[..., Any]:
        def synchronize(*args: Any) -> Any:
            start = self._tape.clock_ns()
            self._tape.mark("anymps::synchronize", 0, start, start, Wait.SYNCHRONIZE)
            result = self._call(call, *args)
            self._waited(None)
            return result

        return synchronize

    def _emptying(self, call: Any) -> Callable[..., Any]:
        def empty_cache(*args: Any) -> Any:
            start = self._tape.clock_ns()
            result = self._call(call, *args)
            self._tape.mark("anymps::empty_cache", 0, start, self._tape.clock_ns(), Wait.EMPTY_CACHE)
            self._waited(None)
            return result

        return empty_cache

    def _recording(self, call: Any) -> Callable[..., Any]:
        def record(event: int) -> Any:
            self._events[event] = self._copies.count
            return call(event)

        return record

    def _waiting(self, call: Any) -> Callable[..., Any]:
        def synchronize(event: int) -> Any:
            result = self._call(call, event)
            if event in self._events:
                self._event_wait(self._events[event])
            return result

        return synchronize

    def _asking(self, call: Any) -> Callable[..., Any]:
        def query(event: int) -> Any:
            complete = call(event)
            if complete and event in self._events:
                self._waited(self._events[event])  # whoever asks until the answer is yes has waited
            return complete

        return query

    def _measuring(self, call: Any) -> Callable[..., Any]:
        def elapsed_time(start: int, end: int) -> Any:
            result = self._call(call, start, end)
            self._event_wait(self._copies.count)
            return result

        return elapsed_time

    def _event_wait(self, copies: int) -> None:
        now = self._tape.clock_ns()
        self._tape.mark("anymps::event_wait", 0, now, now, Wait.EVENT)
        self._waited(copies)

    def _call(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            self._raised(error)
            raise

    def _warning(self, show: Any) -> Callable[..., Any]:
        def showwarning(message: Any, *args: Any, **kwargs: Any) -> Any:
            found = _FALLBACK.match(str(message))
            if found is not None:
                self._fell_back(found["name"])
            return show(message, *args, **kwargs)

        return showwarning
