"""Closes what is open in a process however the process ends, once, and never in a forked child."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import NoReturn

from anymps.cleanup import ENDING_SIGNALS


class ExitWatch:
    """Calls `finish` or `keep` once, whichever end of the process comes first, and only in the process that made it.

    Both get how it ended: `status`, and where they apply `exception`, `message` and `how`. `finish` returns the
    exit status that is asked for (0: none of its own); `keep` is called when a signal is about to end the process.
    With `patient`, a signal that comes while `finish` is at work waits until it is done: a pool, for one, terminates
    workers that are about to end by themselves.
    """

    def __init__(
        self,
        finish: Callable[[dict[str, object]], int],
        keep: Callable[[dict[str, object]], None],
        *,
        patient: bool = False,
    ) -> None:
        self._finish = finish
        self._keep = keep
        self._patient = patient
        self._at_work = False
        self._signal = 0  # the first of those that end the process
        self._process = os.getpid()
        self._open = True
        self._real_exit = os._exit
        os.register_at_fork(after_in_child=self._in_child)

    def finish(self, ending: dict[str, object], shown: bool = True) -> int:
        """Close it, with `finish` or else with `keep`; 0 if it was closed before or is not ours."""
        if not self._take():
            return 0
        if not shown:
            self._keep(ending)
            return 0
        self._at_work = self._patient
        try:
            return self._finish(ending)
        finally:
            self._at_work = False
            if self._signal:
                self._die()

    def _take(self) -> bool:
        if not self._open or os.getpid() != self._process:
            return False
        self._open = False
        return True

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watch, within this, the ends that pass no `finally`: `os._exit`, SIGTERM and SIGHUP."""
        self.install()
        try:
            yield
        finally:
            self.uninstall()

    def install(self) -> None:
        """Watch the ends that pass no `finally` from now on. A signal's handler can be set in the main thread only."""
        os._exit = self._exit
        # Only the default is replaced: a handler of the parent's choice (nohup, a test runner) is left as it is.
        main = threading.current_thread() is threading.main_thread()
        for number in ENDING_SIGNALS:
            if main and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._terminated)

    def uninstall(self) -> None:
        """Put back what `install` replaced, where the script has not replaced it in turn."""
        if os._exit == self._exit:
            os._exit = self._real_exit
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) == self._terminated:
                with contextlib.suppress(ValueError):  # not the main thread
                    signal.signal(number, signal.SIG_DFL)

    def _in_child(self) -> None:
        """After a fork: the child is an ordinary process, whose ends are no concern of ours."""
        if self._open:
            self._open = False
            self.uninstall()

    def _exit(self, status: int) -> NoReturn:
        """Stand in for `os._exit`."""
        try:
            wanted = self.finish({"status": status, "how": "os._exit"})
            if sys.stderr is not None:
                sys.stderr.flush()
        except BaseException:
            self._real_exit(status or 1)
        self._real_exit(status or wanted)

    def _terminated(self, number: int, frame: types.FrameType | None) -> None:
        """Keep what was recorded, then die by the signal, as python without us would. Further ones change nothing."""
        if self._signal:
            return
        self._signal = number
        if self._at_work:
            return
        try:
            if self._take():
                self._keep({"status": 128 + number, "how": signal.Signals(number).name})
        finally:
            self._die()

    def _die(self) -> None:
        self.uninstall()
        os.kill(os.getpid(), self._signal)
