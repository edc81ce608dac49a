"""Runs the workers: a pair that crashes or hangs costs its row, and the shard goes on behind it in a new process."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PATIENCE = 90.0
"""Seconds without a word after which a worker counts as hanging."""


def run(
    shards: int, mac: str, names: Sequence[str] = (), tell: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """The rows of all pairs, `shards` processes side by side; crashes and hangs are rows as well."""
    rows: list[list[dict[str, Any]]] = [[] for _ in range(shards)]
    threads = [
        threading.Thread(target=_shard, args=(number, shards, mac, list(names), rows[number], tell))
        for number in range(shards)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [row for part in rows for row in part]


def _shard(
    number: int, shards: int, mac: str, names: list[str], rows: list[dict[str, Any]], tell: Callable[[str], None]
) -> None:
    start = 0
    while True:
        answer = _worker(number, shards, start, mac, names, rows)
        if answer is None:
            return
        begun, how = answer
        if begun is None:
            raise RuntimeError(f"a worker of the conformance run ended before its first pair: {how}")
        at, pair, expected = begun
        tell(f"shard {number}: {how} in {pair}")
        lost = {"kind": pair[0], "actual": "hang" if how.startswith("hang") else "crash", "detail": how, "samples": 0}
        rows.append({**expected, **lost, "seconds": 0.0})
        start = at + 1


def _worker(
    number: int, shards: int, start: int, mac: str, names: list[str], rows: list[dict[str, Any]]
) -> tuple[tuple[int, list[Any], dict[str, Any]] | None, str] | None:
    """Runs one process. None: it finished. Else the pair that it was in, and how it ended."""
    here = Path(__file__).resolve().parents[1]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(here), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-m", "conformance.worker", str(number), str(shards), str(start), mac, *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
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
    begun: tuple[int, list[Any], dict[str, Any]] | None = None
    while True:
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            process.kill()
            process.wait()
            return begun, f"hang: no word for {PATIENCE:.0f} s"
        if line is None:
            status = process.wait()
            readers[1].join(timeout=5)
            return begun, f"exit status {status}: {complaints[-1] if complaints else 'no message'}"
        message = json.loads(line)
        if "begin" in message:
            begun = (message["begin"], message["pair"], message["row"])
        elif "done" in message:
            rows.append({**message["row"], "seconds": message["seconds"]})
        else:
            process.wait()
            return None
