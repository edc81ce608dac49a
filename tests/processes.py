"""Python in a process of its own, for what a test cannot see or may not do in the process of the test run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anymps
from warm import warm

SOURCE_ROOT = Path(anymps.__file__).parents[1]
MAC = "M3 Pro 18GB"
"""The Mac that the virtual device plays in the tests."""
ENABLE = f"import torch, anymps\nanymps.enable({MAC!r})\n"
"""First lines of a script that uses the device."""

FLUSHED = """
import time
from anymps.capture import _recorder
from anymps.record import Recording
while not Recording.open(_recorder._current._path).entry_count:
    time.sleep(0.1)
"""
"""Lines of a recorded script that wait until its file holds calls, which a killed process then leaves behind."""

PATIENCE = 900
"""Seconds after which a process hangs: far more than any takes on the slowest and busiest of machines."""

_OURS = (
    *("PYTORCH_MPS_", "PYTORCH_ENABLE_MPS_", "ANYMPS_MAC", "ANYMPS_STRICT_COPIES", "ANYMPS_START_METHOD"),
    *("ANYMPS_CHECK_SHADERS", "ANYMPS_CUDA_AS_MPS", "ANYMPS_CHILD", "ANYMPS_KERNELS", "ANYMPS_ALONE"),
    *("ANYMPS_SUBSTRATE", "ANYMPS_GPU", "ANYMPS_CHECK_NUMBERS"),
)


@dataclass(frozen=True)
class Result:
    """How a process ended: its exit code (negative: the signal that ended it) and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output; a process that failed shows its standard error instead."""
        assert self.status == 0, f"exit code {self.status}\n{self.err}"
        return self.out.splitlines()


def clean_environment() -> dict[str, str]:
    """This process's variables for a child that finds anymps, without what enabling the device or a library set here.

    Accelerate, for one, switches the CPU fallback on for every later child.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    paths = [str(SOURCE_ROOT), inherited.get("PYTHONPATH", "")]
    return {**inherited, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def run_python(code: str, env: Mapping[str, str] | None = None, *, timeout: float = PATIENCE) -> Result:
    """Runs `code` in a fresh Python, with `env` added to this process's environment.

    Of the settings of the mps backend a script sees only those of `env`.
    """
    return run_command("-c", textwrap.dedent(code), env=env, timeout=timeout)


def run_with_torch(code: str, env: Mapping[str, str] | None = None, *, timeout: float = PATIENCE) -> Result:
    """`run_python` for a program to which it is all the same that torch has been imported before it: 2 s less.

    What torch or Python reads when it starts cannot be in `env`.
    """
    if sys.platform != "linux":  # elsewhere a fork of a process with torch is not safe
        return run_python(code, env, timeout=timeout)
    return Result(*warm().run(textwrap.dedent(code), {**clean_environment(), **(env or {})}, timeout))


def run_command(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = PATIENCE
) -> Result:
    """Runs a fresh Python with these arguments, as `-m anymps plan train.py`, in `cwd` and like `run_python`."""
    answer = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=cwd,
        env={**clean_environment(), **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Result(answer.returncode, answer.stdout, answer.stderr)


def run_anymps(*words: str, cwd: Path) -> Result:
    """Runs the command line in a fresh Python, without colours and warnings."""
    plain = {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONWARNINGS": "ignore"}
    return run_command("-m", "anymps", *words, cwd=cwd, env=plain)


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds, and fails after far too long."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
