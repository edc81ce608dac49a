"""A process that answers in JSON lines: what it says, and how it ended if it crashed or hung."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_LEAVES: Final = 60.0
"""Seconds that a process may take to end after its last message."""
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
        return _heard(process, given, hear, patience)


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
    try:
        ended = _conversation(process, given, hear, patience, lines)
    finally:  # after Ctrl-C, too: nothing is left running or reading
        if process.poll() is None:
            process.kill()
        process.wait()
        for reader in readers:
            reader.join()
    if ended.how != "crash":
        return ended
    return Ended("crash", ended.status, complaints[-1] if complaints else "no message")


def _conversation(
    process: subprocess.Popen[str],
    given: str,
    hear: Callable[[dict[str, Any]], float | None],
    patience: float,
    lines: queue.Queue[str | None],
) -> Ended:
    """What was said, and how it ended; the words of a crash are known when standard error was read to its end."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it ended before it read: its status says why
        process.stdin.write(given)
        process.stdin.close()
    wait: float | None = patience
    while wait is not None:
        try:
            line = lines.get(timeout=wait)
        except queue.Empty:
            process.kill()
            return Ended("hang", process.wait(), f"no response for {wait:g} s")
        if line is None:
            return Ended("crash", process.wait(), "")
        wait = hear(json.loads(line))
    try:
        return Ended("exit", process.wait(_LEAVES), "")
    except subprocess.TimeoutExpired:  # it has said all; what keeps it does not matter
        process.kill()
        return Ended("exit", process.wait(), "")
