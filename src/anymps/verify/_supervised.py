"""A process that answers in JSON lines: what it says, and how it ended if it crashed or hung."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

_LEAVES: Final = 60.0
"""Seconds that a process may take to end after its last message."""
_LAST: Final = 10_000
"""Bytes at the end of standard error, the last line of which says why a process died."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: `exit`, after its last message or not, `hang`, or `crash`; its `status`, and last words."""

    how: str
    status: int
    words: str


def listen(
    command: Sequence[str],
    environment: Mapping[str, str],
    given: str,
    hear: Callable[[dict[str, Any]], float | None],
    patience: float,
) -> Ended:
    """Run a command, give it a text, and hear each of its messages.

    `hear` returns how many seconds may pass until the next message, or None where nothing more is expected; the first
    has `patience`. What does not speak in time is killed, and counts as hanging. Without a None it counts as crashed.
    """
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=complaints, env=dict(environment)) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        lines: queue.Queue[bytes] = queue.Queue()
        reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended before it read: its status says why
                process.stdin.write(given.encode())
                process.stdin.close()
            wait: float | None = patience
            while wait is not None:
                line = lines.get(timeout=wait)
                if not line:
                    return Ended("crash", process.wait(), _last_words(complaints))
                wait = hear(json.loads(line))
            with contextlib.suppress(subprocess.TimeoutExpired):  # it has said all; what keeps it does not matter
                process.wait(_LEAVES)
            return Ended("exit", _end(process), "")
        except queue.Empty:
            return Ended("hang", _end(process), f"no response for {wait:g} s")
        finally:  # after Ctrl-C, too: nothing is left running or reading
            _end(process)
            reader.join()


def _read(output: Any, lines: queue.Queue[bytes]) -> None:
    for line in output:
        lines.put(line)
    lines.put(b"")


def _end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.kill()
    return process.wait()


def _last_words(complaints: BinaryIO) -> str:
    complaints.seek(max(complaints.seek(0, 2) - _LAST, 0))
    lines = complaints.read().decode(errors="replace").split("\n")
    return next((line.rstrip() for line in reversed(lines) if line.strip()), "no message")
