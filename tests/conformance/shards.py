"""Runs the workers: a pair that crashes or hangs costs its row, and the shard goes on behind it in a new process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from anymps.device._gpus import RANK_VARIABLE
from anymps.verify import listen

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
            pool.submit(_shard, [*worker, str(number), str(shards)], [mac, *names], tell, patience, number)
            for number in range(shards)
        ]
        return [row for part in parts for row in part.result()]


def _shard(command: list[str], arguments: list[str], tell: Tell, patience: float, number: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    start = 0
    while True:
        answer = _worker([*command, str(start), *arguments], rows, patience, number)
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


def _worker(
    command: list[str], rows: list[dict[str, Any]], patience: float, number: int
) -> tuple[Begun | None, str] | None:
    """Runs one process, which is the `number`-th on its GPUs. None: it finished. Else its pair, and how it ended."""
    here = Path(__file__).resolve().parents[1]
    environment = {**os.environ, RANK_VARIABLE: str(number)}
    environment["PYTHONPATH"] = os.pathsep.join([str(here), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    begun: Begun | None = None

    def hear(message: dict[str, Any]) -> float | None:
        nonlocal begun
        if "begin" in message:
            begun = (message["begin"], message["pair"], message["row"])
        elif "done" in message:
            rows.append({**message["row"], "seconds": message["seconds"]})
        elif "alive" not in message:  # else a sample of a pair is done, and the next one has all the patience again
            return None
        return patience

    ended = listen(command, environment, "", hear, START_PATIENCE)
    if ended.how == "exit":
        return None
    return begun, f"hang: {ended.words}" if ended.how == "hang" else f"exit status {ended.status}: {ended.words}"
