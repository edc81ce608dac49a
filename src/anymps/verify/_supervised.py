"""A process that answers in JSON lines: what it says, and how it ended if it crashed or hung."""

from __future__ import annotations

__all__ = ["Ended", "listen"]

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_LINES: Final = 20
"""Of standard error that are kept: the last of them says why a process died."""


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
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=dict(environment),
    ) as process:
        try:
            return _heard(process, given, hear, patience)
        except BaseException:  # Ctrl-C, too: nothing is left running
            process.kill()
            raise


def _heard(
    process: subprocess.Popen[str], given: str, hear: Callable[[dict[str, Any]], float | None], patience: float
) -> Ended:
    lines: queue.Queue[str | None] = queue.Queue()
    complaints: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def drain() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip():
                complaints.append(line.rstrip())
                del complaints[:-_LINES]

    readers = [threading.Thread(target=read, daemon=True), threading.Thread(target=drain, daemon=True)]
    for reader in readers:
        reader.start()
    assert process.stdin is not None
    try:
        process.stdin.write(given)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it ended before it read: its status says why
    wait: float | None = patience
    while wait is not None:
        try:
            line = lines.get(timeout=wait)
        except queue.Empty:
            process.kill()
            return Ended("hang", _end(process, readers), f"no word for {wait:g} s")
        if line is None:
            status = _end(process, readers)
            return Ended("crash", status, complaints[-1] if complaints else "no message")
        wait = hear(json.loads(line))
    return Ended("exit", _end(process, readers), complaints[-1] if complaints else "")


def _end(process: subprocess.Popen[str], readers: list[threading.Thread]) -> int:
    status = process.wait()
    for reader in readers:
        reader.join()
    return status
