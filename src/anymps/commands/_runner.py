"""One run with everything around it: the session is opened before the script and closed however the script ends."""

from __future__ import annotations

__all__ = ["FAULT", "Session", "run_target"]

import contextlib
import os
import signal
import sys
import traceback
import types
from collections.abc import Iterator
from typing import NoReturn, Protocol

from anymps._errors import AnympsError
from anymps.commands._show import say
from anymps.commands._target import Target, execute

FAULT = 70  # a fault of anymps itself (EX_SOFTWARE of sysexits.h)


class Session(Protocol):
    """What `run_target` needs of a recording run. `_session.RunSession` is the real one."""

    def start(self, target: Target) -> None:
        """Switch the device on and begin to record. May raise AnympsError: nothing has run yet."""

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording and show the report; return the exit status it asks for (0: none of its own).

        ``ending`` says how the script ended: ``status`` (int) and, where they apply, ``exception``, ``message`` and
        ``how``.
        """

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording without a report: the process is about to be ended by a signal."""


def run_target(target: Target, session: Session) -> int:
    """Run a target as python would, inside a session, and return the exit status.

    The script's own status wins; that of the session counts where the script ended with 0. However the script ends
    (an exception, Ctrl-C, `os._exit`, SIGTERM), the session is closed exactly once, and never in a forked child.

    Raises AnympsError if the target does not exist or the session cannot start.
    """
    target.set_import_path()
    target.check()
    session.start(target)
    guard = _Guard(session)
    with guard.installed():
        try:
            status, ending = execute(target)
        except BaseException as error:  # the target was not found in its package
            guard.finish({"status": 2, "exception": type(error).__name__, "message": str(error)}, shown=False)
            raise
        try:
            wanted = guard.finish(ending)
        except AnympsError as error:
            say(error)
            wanted = error.exit_code
        except Exception:
            # Our fault: it is shown whole, and must not hide how the script ended.
            traceback.print_exc()
            wanted = FAULT
    return status or wanted


class _Guard:
    """Closes the session once, whichever end of the process comes first, and only in the process that opened it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._process = os.getpid()
        self._open = True
        self._real_exit = os._exit
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def finish(self, ending: dict[str, object], shown: bool = True) -> int:
        """Close the session, with the report unless not ``shown``; 0 if it was closed before or is not ours."""
        if not self._take():
            return 0
        if shown:
            return self._session.finish(ending)
        self._session.keep(ending)
        return 0

    def _take(self) -> bool:
        if not self._open or os.getpid() != self._process:
            return False
        self._open = False
        return True

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watch the ends that pass no `finally`: `os._exit` and SIGTERM."""
        os._exit = self._exit
        # Only the default is replaced: a handler of the parent's choice (nohup, a test runner) is left as it is.
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
        try:
            yield
        finally:
            self._uninstall()

    def _uninstall(self) -> None:
        """Put back what `installed` replaced, where the script has not replaced it in turn."""
        if os._exit == self._exit:
            os._exit = self._real_exit
        if signal.getsignal(signal.SIGTERM) == self._terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _in_child(self) -> None:
        """After a fork: the child is an ordinary process, whose ends are no concern of ours."""
        if self._open:
            self._open = False
            self._uninstall()

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
        """Keep what was recorded, then die by the signal, as python without us would. A second one kills at once."""
        signal.signal(number, signal.SIG_DFL)
        try:
            if self._take():
                self._session.keep({"status": 128 + number, "how": signal.Signals(number).name})
        finally:
            os.kill(os.getpid(), number)
