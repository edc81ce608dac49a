"""A Python that has imported torch and forks for each program: a process of a test's own without 2 s of import.

Run as a program, with a socket's descriptor, it reads one line of JSON for each program and answers with the exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import linecache
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


class Warm:
    """The process, held by the one that runs the tests; it ends with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        here, there = socket.socketpair()
        with there:
            # As text: a recording takes what has a file, and is not anymps', for the program's.
            command = [sys.executable, "-c", Path(__file__).read_text("utf-8"), str(there.fileno())]
            self._process = subprocess.Popen(
                command, env=environment, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        self._lines = here.makefile("rw", encoding="utf-8")
        here.close()
        atexit.register(self.close)

    def run(self, code: str, environment: Mapping[str, str], timeout: float) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a program; after `timeout` seconds it is killed."""
        with tempfile.TemporaryDirectory() as folder:
            order = {"code": code, "environment": dict(environment), "cwd": os.getcwd(), "folder": folder}
            self._lines.write(json.dumps({**order, "timeout": timeout}) + "\n")
            self._lines.flush()
            status = json.loads(self._lines.readline())
            if status is None:
                raise subprocess.TimeoutExpired(code, timeout)
            out, err = (Path(folder, name).read_text("utf-8") for name in ("out", "err"))
            return status, out, err

    def close(self) -> None:
        """End it."""
        self._lines.close()
        self._process.wait()


@cache
def warm() -> Warm:
    """The one of this process."""
    from processes import clean_environment

    return Warm(clean_environment())


def serve(descriptor: int) -> dict[str, Any] | None:
    """Answer until the other end closes; in each fork the order that it is to run."""
    with socket.socket(fileno=descriptor) as end, end.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            order: dict[str, Any] = json.loads(line)
            child = os.fork()
            if child == 0:
                return order
            lines.write(json.dumps(_status(child, order["timeout"])) + "\n")
            lines.flush()
    return None


def _status(child: int, timeout: float) -> int | None:
    """The exit code, negative for a signal; nothing for a child that had to be killed."""
    end, pause = time.monotonic() + timeout, 0.001
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def execute(order: Mapping[str, Any]) -> None:
    """Run a program as `python -c` would, in this process."""
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(os.path.join(order["folder"], name), os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    sys.argv, sys.path[0] = ["-c"], ""
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        code = compile(order["code"], "<string>", "exec")
        if sys.version_info >= (3, 13):  # from then on `python -c` shows lines of its code in tracebacks
            linecache._register_code(code, order["code"], "<string>")  # type: ignore[attr-defined,unused-ignore]
        exec(code, program.__dict__)
    except Exception as error:
        if error.__traceback__ is not None:
            error.__traceback__ = error.__traceback__.tb_next  # without this function's own line
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    import torch  # noqa: F401

    gc.freeze()
    given = serve(int(sys.argv[1]))
    if given is not None:
        execute(given)
