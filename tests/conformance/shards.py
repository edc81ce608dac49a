"""Runs the workers: a pair that crashes or hangs costs its row, and the shard goes on behind it in a new process."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PATIENCE = 90.0
"""Seconds without a word, which comes after every sample, after which a worker counts as hanging."""
START_PATIENCE = 900.0
"""The same for a worker's start, which imports torch and its database: slow on a busy machine, and no pair's fault."""

_WORKER = (sys.executable, "-m", "conformance.worker")

Tell = Callable[[str], None]
Begun = tuple[int, list[Any], dict[str, Any]]
"""A pair's number in its shard, the pair, and its row as far as it is known before the run."""


def run(
    shards: int,
    mac: str,
    names: Sequence[str] = (),
    tell: Tell = lambda line: None,
    worker: Sequence[str] = _WORKER,
    patience: float = PATIENCE,
) -> list[dict[str, Any]]:
    """The rows of all pairs, `shards` processes of `worker` side by side; crashes and hangs are rows as well.

    Raises RuntimeError if a worker ends before its first pair, with the last line that it wrote.
    """
    with ThreadPoolExecutor(shards) as pool:
        parts = [
            pool.submit(_shard, [*worker, str(number), str(shards)], [mac, *names], tell, patience)
            for number in range(shards)
        ]
        return [row for part in parts for row in part.result()]


def _shard(command: list[str], arguments: list[str], tell: Tell, patience: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    start = 0
    while True:
        answer = _worker([*command, str(start), *arguments], rows, patience)
        if answer is None:
            return rows
        begun, how = answer
        if begun is None:
            raise RuntimeError(f"a worker of the conformance run ended before its first pair: {how}")
        at, pair, expected = begun
        tell(f"{how} in {pair}")
        actual = "hang" if how.startswith("hang") else "crash"
        rows.append({**expected, "kind": pair[0], "actual": actual, "detail": how, "samples": 0, "seconds": 0.0})
        start = at + 1


def _worker(command: list[str], rows: list[dict[str, Any]], patience: float) -> tuple[Begun | None, str] | None:
    """Runs one process. None: it finished. Else the pair that it was in, and how it ended."""
    here = Path(__file__).resolve().parents[1]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(here), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        return _listen(process, rows, patience)


def _listen(
    process: subprocess.Popen[str], rows: list[dict[str, Any]], patience: float
) -> tuple[Begun | None, str] | None:
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
            complaints.append(line.rstrip())
            del complaints[:-20]

    readers = [threading.Thread(target=read, daemon=True), threading.Thread(target=drain, daemon=True)]
    for reader in readers:
        reader.start()
    begun: Begun | None = None
    while True:
        try:
            wait = START_PATIENCE if begun is None else patience
            line = lines.get(timeout=wait)
        except queue.Empty:
            process.kill()
            _end(process, readers)
            return begun, f"hang: no word for {wait:g} s"
        if line is None:
            status = _end(process, readers)
            return begun, f"exit status {status}: {complaints[-1] if complaints else 'no message'}"
        message = json.loads(line)
        if "begin" in message:
            begun = (message["begin"], message["pair"], message["row"])
        elif "done" in message:
            rows.append({**message["row"], "seconds": message["seconds"]})
        elif "alive" not in message:  # else a sample of a pair is done, and the next one has all the patience again
            _end(process, readers)
            return None


def _end(process: subprocess.Popen[str], readers: list[threading.Thread]) -> int:
    status = process.wait()
    for reader in readers:
        reader.join()
    return status
