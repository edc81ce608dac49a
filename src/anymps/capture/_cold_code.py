"""Measures between two steps how much slower code runs when the caches were used for something else since.

Here the CPU computes the calls, and other programs run while they do. Both fill the caches, so what the program does
next takes several times as long. A Mac's GPU computes beside the host, whose caches stay its own. By how much that
code is slower tells a piece of Python that runs once a step, as the program's own does: its first run, and a second.

Measured on an Intel Xeon with Python 3.11, after 4 and 32 MB were read and after 5 ms in which others ran: the piece
takes 1.6 to 5.7 times as long, and beside it a backward 0.9 to 1.4 times that, AdamW's step 0.9 to 1.2 times, a call of
a module 1.5 to 2 times.
"""

from __future__ import annotations

import json
import time
from typing import Final

_EVERY: Final = 4  # steps, of which two run the piece: its first run in the one makes the other's first one a step old
_PAUSE_NS: Final = 5_000_000  # between two measurements, at least: one takes a tenth of a millisecond
_write: Final = json.JSONEncoder(indent=1).encode  # with an indent, by Python alone
_TEXT: Final = {"a": [1, 2.5, "x"], "b": {"c": [None, True]}}


class ColdCode:
    """What a piece of code takes when a step lies between its runs, and what it takes at once again."""

    def __init__(self) -> None:
        self._first = self._again = 0  # ns, the quickest; 0: none yet
        self._steps = 0
        self._last = 0
        self._begun = False

    def stepped(self) -> None:
        """A step of the program is over: run the piece after two of four steps, where the last time is long ago."""
        self._steps += 1
        turn = self._steps % _EVERY
        if turn == _EVERY - 2 and time.monotonic_ns() - self._last > _PAUSE_NS:
            self._begun = True
            _piece()
        elif turn == _EVERY - 1 and self._begun:
            self._begun = False
            first, again = _piece(), _piece()
            self._first = min(self._first or first, first)
            self._again = min(self._again or again, again)
            self._last = time.monotonic_ns()

    @property
    def microseconds(self) -> list[float]:
        """Of the quickest first run, and of the quickest second one; empty where it was never measured."""
        if not self._first or not self._again:
            return []
        return [max(self._first, self._again) / 1000, self._again / 1000]


def _piece() -> int:
    """Processor time of this thread in ns, so that what others take of the core is not in it."""
    start = time.thread_time_ns()
    _write(_TEXT)
    return time.thread_time_ns() - start
