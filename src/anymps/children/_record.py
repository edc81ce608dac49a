"""Records a process that a recorded script has started, into a recording of its own."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from anymps._settings import asked_for
from anymps.capture import Capture, ending_of
from anymps.children._exit_watch import ExitWatch
from anymps.children._parts import RANK_VARIABLE, ChildSettings, finished_name, running_name
from anymps.record import move_recording, remove_recording

if TYPE_CHECKING:
    from anymps.numerics import NumberCheck


def record_here(folder: str, settings: ChildSettings) -> Callable[[], None]:
    """Record this process from now on; what is returned ends that without a trace.

    Raises RecordingError if the part cannot be written, and EnableError without a device.
    """
    inherited = os.environ.get(RANK_VARIABLE, "")
    path = os.path.join(folder, running_name(time.time_ns(), os.getpid(), _rank_of_launcher(inherited)))
    arguments = sys.argv[1:] if settings.arguments else []
    script = sys.argv[0] if sys.argv else ""
    capture = Capture(path, script=script, argv=arguments, source=settings.source, steps=settings.steps)
    capture.__enter__()
    numbers = _start_checking()
    if os.environ.get("RANK"):
        os.environ[RANK_VARIABLE] = os.environ["RANK"]  # the workers of this rank are no ranks

    def finish(ending: dict[str, object]) -> int:
        rank = _rank(inherited)
        if numbers is not None:
            from anymps.numerics import stop_checking

            stop_checking(capture.note_fact)
        capture.close(ending)
        with suppress(OSError):  # whoever read it may have removed it
            move_recording(path, finished_name(path, rank))
        return 0

    def keep(ending: dict[str, object]) -> None:
        finish(ending)

    watch = ExitWatch(finish, keep, patient=True)
    watch.install()

    def at_exit() -> None:
        error = getattr(sys, "last_value", None)  # what ended it, as Python printed it
        watch.finish({"status": 0} if error is None else ending_of(error))

    atexit.register(at_exit)

    def leave() -> None:
        watch.finish({"status": 0})
        watch.uninstall()
        for recording in (path, finished_name(path, _rank(inherited))):
            with suppress(OSError):
                remove_recording(recording)

    return leave


def _start_checking() -> NumberCheck | None:
    """Compare this process's numbers, if the one that started it does."""
    which = asked_for("check_numbers")
    if which is None:
        return None
    from anymps.device import state
    from anymps.numerics import can_differ, start_checking

    current = state()
    return start_checking(which) if current is not None and can_differ(current) else None


def _rank(inherited: str) -> str:
    """This process's rank as its launcher says it, else as its process group does; empty for one that has none."""
    if os.environ.get("RANK"):
        return _rank_of_launcher(inherited)
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return ""
    return str(distributed.get_rank())


def _rank_of_launcher(inherited: str) -> str:
    """The rank that a launcher has told this process; a worker of a rank finds that of its parent."""
    rank = os.environ.get("RANK", "")
    return rank if rank != inherited else ""
