"""The process of an order: started, held to its limits, ended with all that it started, and what it leaves."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from anymps._cache import CACHE_VARIABLE, cache_home
from anymps._own_process import own_call
from anymps.cleanup import PrivateFolder, adopt_descendants, children, end_children
from anymps.runs._order import ORDER, Order
from anymps.runs.sandbox import CHANNEL, Supervisor

LIFELINE: Final = "ANYMPS_LIFELINE"
"""Variable with the number of a pipe's reading end, which closes when the process that gave the order is gone."""

RECORDING, NOTED, FILES = "recording", "noted.json", "files"
"""What a run leaves in its folder: the recording, other facts, and what it wrote, each file at its path."""

PATIENCE: Final = 4
"""How many times its seconds a process may wait for the processor, for a disk or for others."""

_GLANCE = 0.2  # seconds between two looks at a clock that is about to reach its limit
_GRACE = 20.0  # seconds to close the recording
_running: set[int] = set()  # process ids
_starting = threading.Lock()  # held until what has started is in `_running`

_T = TypeVar("_T")


@dataclass(frozen=True)
class Answer:
    """What a run left, for as long as its folder is there.

    `status` is the process's, negative for a signal, None if it had to be ended after its time. It took `seconds`.
    """

    folder: Path
    status: int | None
    seconds: float

    @cached_property
    def noted(self) -> Mapping[str, Any]:
        """The facts that were noted; empty if the script did not start, or its process was killed.

        `error` is how it ended, in one line, empty for 0; `trail` the lines of the exception that ended it, the
        outermost first; `early` whether its steps ended it, and `loop` the file and line of the loop if these were
        rounds of one without an optimizer; `unrecorded` why the recording was lost; `written` and `removed` files that
        are on disk as they were. The others are those of the order's observer.
        """
        path = self.folder / NOTED
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    @property
    def recording(self) -> Path:
        """The recording; there is none if the script did not start, or nothing was to be recorded."""
        return self.folder / RECORDING

    @property
    def files(self) -> Path:
        """What it wrote lies below, each file at its path."""
        return self.folder / FILES

    @cached_property
    def output(self) -> str:
        """What it printed."""
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    @cached_property
    def errors(self) -> str:
        """What it printed on standard error."""
        return (self.folder / "errors").read_text(encoding="utf-8", errors="replace")


@contextmanager
def run(order: Order) -> Iterator[Answer]:
    """Run an order to its end, and give what it left, which is there within this context.

    Its process leads a session of its own and adopts what its children leave, which comes to this process when it ends:
    nothing that it starts outlives it. It ends when this process does.
    """
    with PrivateFolder("anymps-run-") as folder:
        order.write(folder / ORDER)
        command = own_call("anymps.commands._runner:run_order", folder / ORDER)
        began = time.monotonic()
        status = run_command(command, folder, order)
        yield Answer(folder, status, time.monotonic() - began)


class Runner(ThreadPoolExecutor):
    """Calls functions that run orders, at the same time. What is not done when its context ends is ended then."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._started: list[Future[Any]] = []

    def submit(self, function: Callable[..., _T], /, *given: Any, **named: Any) -> Future[_T]:
        """Call a function in another thread."""
        future = super().submit(function, *given, **named)
        self._started.append(future)
        return future

    def __exit__(self, *_: object) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in self._started):
            for leader in tuple(_running):
                _end_group(leader)
            time.sleep(0.05)
        self.shutdown()


def together(runs: Sequence[Callable[[], _T]]) -> list[_T]:
    """What functions give that run orders, all at the same time. Where one fails, the processes of all are ended."""
    with Runner(len(runs)) as runner:
        return [each.result() for each in [runner.submit(each) for each in runs]]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within this context no order's process is started or ended, as that would end what else this process starts."""
    with _starting:
        yield


def run_command(command: Sequence[str], folder: Path, order: Order) -> int | None:
    """Run a command as an order says, with its output and errors in files of the folder; its status as in `Answer`."""
    adopt_descendants()
    reader, writer = os.pipe()
    environment = {**os.environ, **order.environment, LIFELINE: str(reader)}
    if order.seeded:
        environment.setdefault("PYTHONHASHSEED", "0")  # the order of a set of strings is a seed, too
    kept = [reader]
    supervisor = None if order.may_write else Supervisor()
    if supervisor is not None:
        # SQLite looks for a place for what does not fit into memory once, before it can be sent to a private one.
        environment["SQLITE_TMPDIR"] = str(folder)
        # The one folder that stays open: a compiler reads what is on the disk, not what was sent elsewhere.
        environment[CACHE_VARIABLE] = str(cache_home())
        if supervisor.channel is not None:
            environment[CHANNEL] = str(supervisor.channel)
            kept.append(supervisor.channel)
    try:
        with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors, _starting:
            others = children()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=order.directory or None,
                env={name: value for name, value in environment.items() if value is not None},
                pass_fds=kept,
                start_new_session=True,
            )
            _running.add(process.pid)
        if supervisor is not None:
            supervisor.handed_over()
        _name_processor_limit(process.pid)
        try:
            return _wait(process, order.seconds, PATIENCE * order.seconds if order.patient else order.seconds)
        finally:
            _end_group(process.pid)
            process.wait()
            with _starting:
                _running.discard(process.pid)
                end_children(others | _running)
    finally:
        if supervisor is not None:
            supervisor.stop()
        os.close(reader)
        os.close(writer)


def _wait(process: subprocess.Popen[bytes], seconds: float, at_most: float) -> int | None:
    """Its status, or None after telling it to stop: `seconds` after its start, if it used the processor as long by
    then, else once it has, and `at_most` seconds after its start.
    """
    began = time.monotonic()
    limit = seconds
    while limit > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=limit if limit < math.inf else None)
        missing = seconds - _processor_seconds(process.pid)
        limit = min(max(missing, _GLANCE), at_most - (time.monotonic() - began)) if missing > 0 else 0.0
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE)
    return None


def processor_limits() -> tuple[int, int]:
    """The soft and the hard limit of processor time, in seconds; -1 for none."""
    import resource  # not on Windows

    return resource.getrlimit(resource.RLIMIT_CPU)


def _name_processor_limit(pid: int) -> None:
    """Have SIGXCPU end a process a second before its limit of processor time: SIGKILL would not say why."""
    soft, hard = processor_limits()
    if sys.platform == "linux" and soft == hard > 0:
        import resource

        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_CPU, (hard - 1, hard))


def _processor_seconds(pid: int) -> float:
    """How long a process that runs, or has just ended, used the processor; infinity where the system does not tell."""
    if sys.platform != "linux":
        return math.inf
    try:
        return time.clock_gettime(~pid << 3 | 2)  # its clock, as clock_getcpuclockid of the C library names it
    except OSError:
        return math.inf


def _end_group(leader: int) -> None:
    """Kill every process of the group that one process leads, itself included."""
    with suppress(ProcessLookupError, PermissionError):  # macOS denies it for a group of dead processes
        os.killpg(leader, signal.SIGKILL)
