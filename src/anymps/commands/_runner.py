"""One run: opens the session before the script and closes it however the script ends."""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final, Protocol

from anymps._errors import FAULT, MORE_FILES, TOO_MANY_FILES, AnympsError, UsageError
from anymps.children import ExitWatch
from anymps.cleanup import SignalHandlers, leave_signals, termination_raises
from anymps.commands._show import say
from anymps.commands._target import Target, execute

_PACKAGES: Final = ("click", "markdown_it", "mdurl", "platformdirs", "pygments", "rich", "tomli")
"""What anymps may have loaded when a script begins, and the script may have modules of the same names."""


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


def run_order(path: Path) -> int:
    """Run what an order in a file says, in this process that was started for it."""
    from anymps.runs import Order
    from anymps.runs.inside import OrderSession

    order = Order.read(path)
    return run_target(Target.of(order.words), OrderSession(order, path.parent))


def run_target(target: Target, session: Session) -> int:
    """Run a target as python would, inside a session, and return the exit status.

    The script's own status wins; that of the session counts where the script ended with 0. However the script ends
    (an exception, Ctrl-C, `os._exit`, SIGTERM), the session is closed exactly once, and never in a forked child.

    Raises AnympsError if the target does not exist or the session cannot start.
    """
    target.set_import_path()
    target.check()
    session.start(target)

    def finish(ending: dict[str, object]) -> int:
        watch.uninstall()  # nothing is left to keep
        handlers.restore()
        return report(ending)

    def report(ending: dict[str, object]) -> int:
        with termination_raises():
            try:
                return session.finish(ending)
            except AnympsError as error:
                say(error)
                return error.exit_code
            except OSError as error:
                if error.errno not in TOO_MANY_FILES:
                    traceback.print_exc()
                    return FAULT
                say(MORE_FILES)
                return UsageError.exit_code
            except Exception:
                # A bug of anymps: show its traceback, and keep the script's exit code.
                traceback.print_exc()
                return FAULT

    handlers = SignalHandlers()
    leave_signals()
    watch = ExitWatch(finish, session.keep)
    with watch.installed():
        _hide_from_script()
        try:
            status, ending = execute(target.execute)
        except BaseException as error:  # the target was not found in its package
            watch.finish({"status": 2, "exception": type(error).__name__, "message": str(error)}, shown=False)
            raise
        wanted = watch.finish(ending)
    return status or wanted


def _hide_from_script() -> None:
    """Forget what we have loaded and the script would find elsewhere: it gets its own."""
    for name in filter(sys.modules.__contains__, _PACKAGES):
        spec = PathFinder.find_spec(name, sys.path)
        if spec is not None and spec.origin != sys.modules[name].__file__:
            for loaded in [module for module in sys.modules if module.partition(".")[0] == name]:
                del sys.modules[loaded]
