"""Turns a signal that ends a command into an exception, so that open files are closed and temporary ones removed."""

from __future__ import annotations

import os
import signal
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ENDING_SIGNALS: Final = [signal.SIGTERM, signal.SIGHUP]
"""What ends a program from outside: a cancelled job, a time limit, a terminal that closes."""

_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_received: list[int] = []  # the first of them


class Terminated(BaseException):
    """A signal that ends the process was sent to it."""


@contextmanager
def termination_raises() -> Iterator[None]:
    """Within this SIGTERM and SIGHUP raise Terminated, once; at its end the process dies by the signal.

    Only the defaults are replaced: a handler of the parent's choice (nohup, a test runner) is left as it is.
    """
    if threading.current_thread() is threading.main_thread():
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _raise)
    try:
        yield
    except Terminated:
        leave_signals()
        os.kill(os.getpid(), _received[0])
        raise
    finally:
        leave_signals()


class SignalHandlers:
    """The handlers of all signals as they are now, to be put back after a script that may set its own."""

    def __init__(self) -> None:
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def restore(self) -> None:
        """Put them back, and stop timers. Only the main thread may do that; in another one nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def leave_signals() -> None:
    """Let the signals do again what they do in any Python: a script is about to run."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is _raise:
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: types.FrameType | None) -> None:
    """Raise for the first signal; `timeout`, for one, sends two, to the process and to its group."""
    if not _received:
        _received.append(number)
        raise Terminated(signal.Signals(number).name)
