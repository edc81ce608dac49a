"""Other processes: how anymps starts itself again, without code from the current folder, and what a tool prints."""

from __future__ import annotations

import base64
import os
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = Path(__file__).resolve().parent

_NOT_STARTED: Final = 126  # and above: what shells and loaders end with, such as 127 where a library is missing

SAFE_PATH: Final = ["-P"] if sys.version_info >= (3, 11) else []
"""Options of this interpreter under which `-c` does not put the current folder first among the places of modules.

The code itself takes it out too late: Python 3.14 imports `linecache` first, to keep the lines of that code.
"""


def own_call(function: str, *given: object) -> list[str]:
    """The command that calls a function of anymps, named `module:function`, in a new process with this interpreter.

    By a file, as `-m anymps` and `-c` put the current folder first: a file of the name anymps.py or json.py there would
    run. `-I` and `-P` are no choice: the script would do without PYTHONPATH, or without its own folder.
    """
    return [sys.executable, str(_PACKAGE / "__main__.py"), "--call", function, packed(given)]


def called(function: str, given: str) -> int:
    """Do what such a command says; the exit status that the function returns, 0 for none."""
    status: int | None = pkgutil.resolve_name(function)(*unpacked(given))
    return status or 0


def packed(value: object) -> str:
    """A value as text for another process of anymps."""
    return base64.b64encode(pickle.dumps(value, protocol=4)).decode()


def unpacked(text: str) -> Any:
    """The value that a process of anymps has packed."""
    return pickle.loads(base64.b64decode(text))


def without_preloads() -> dict[str, str]:
    """The variables for a tool under a limit of memory: a sanitizer that this process preloads takes more than that."""
    return {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}


def printed_by(command: Sequence[str], **environment: str) -> str:
    """What a tool prints, with nothing to read; the empty text if it cannot be run, fails, or takes a minute."""
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            timeout=60, env={**os.environ, **environment},
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: a NUL in a name
        return ""
    return (answer.stdout or answer.stderr).strip() if answer.returncode == 0 else ""


class FreshProcess:
    """Starts processes with the folder, variables and standard streams that this process had when the object was made.

    A script that changes this process does not change them.
    """

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._variables = dict(os.environ)
        self._output, self._errors = _Stream(1), _Stream(2)

    def run(self, command: list[str], *, errors: int | None = None) -> str | int:
        """Run a command to its end: its exit status, or in words why there is none.

        It leads a session of its own: what ends this process from outside ends it by SIGTERM, and does not reach it by
        itself. `errors` is another descriptor than that of standard error.
        """
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a script may have replaced it
                stream.flush()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL,
                stdout=self._output.number, stderr=self._errors.number if errors is None else errors,
                cwd=self._folder, env=self._variables, start_new_session=True,
            )  # fmt: skip
        except (OSError, TypeError) as error:  # TypeError: Python does not know its own program
            return f"no process can be started ({getattr(error, 'strerror', error)})"
        try:
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if status < 0:
            return f"its process was ended by signal {-status}"
        return status if status < _NOT_STARTED else f"its process could not start (status {status})"

    def tell(self, line: str) -> None:
        """Print a line on the standard error that it would have."""
        with suppress(OSError):
            errors = self._errors.number
            os.write(2 if errors is None else errors, f"{line}\n".encode(errors="backslashreplace"))


class _Stream:
    """A copy of a standard stream's descriptor, for where a script closes that one."""

    def __init__(self, descriptor: int) -> None:
        self._copy = -1
        self._place = (0, 0)
        with suppress(OSError):  # it is closed
            self._copy = os.dup(descriptor)
            self._place = _place(self._copy)

    @property
    def number(self) -> int | None:
        """The copy; None where it is gone, as after a script that closes all, whose own file may have its number."""
        with suppress(OSError):
            if _place(self._copy) == self._place:
                return self._copy
        return None


def _place(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_dev, state.st_ino
