"""`python -m tests.leniency [--seed N] [--calls N] [--source random|samples] [NAME ...]`: hunts for leniency.

Makes random calls of every overload in torch's schemas, or changes torch's own sample inputs a little (`--source
samples`), and looks for calls that mps takes and the CPU refuses. NAME is the beginning of an operator's name. A call
that a source explains is counted under its reason (`known.py`), any other is shown, and the exit code is 1. An operator
whose kernel ends the process is told with the call, and the hunt goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from leniency.worker import NOTE  # noqa: E402


def hunt(source: str, seed: int, count: int, wanted: list[str]) -> Iterator[dict[str, Any]]:
    """The lines of the workers, and `{"crash": name, "call": ..}` where one ended; each begins behind the last."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryDirectory() as folder:
        note, errors = Path(folder, "call"), Path(folder, "errors")
        note.write_bytes(bytes(NOTE))
        start, ended = 0, False
        while not ended:
            command = ["leniency.worker", source, str(seed), str(count), str(start), str(note), *wanted]
            name = ""
            with errors.open("w") as stderr, subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *command],
                stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment,
            ) as worker:  # fmt: skip
                assert worker.stdout is not None
                for line in worker.stdout:
                    told = json.loads(line)
                    if "begin" in told:
                        start, name = told["begin"] + 1, told["name"]
                    ended = "end" in told
                    yield told
            if not ended and (not name or worker.returncode > 0):
                raise SystemExit(f"the worker failed in {name or 'its beginning'}:\n{errors.read_text()[-3000:]}")
            if not ended:
                yield {"crash": name, "call": note.read_bytes().decode(errors="replace").strip()}


def main() -> int:
    """Hunts, and prints what was found by overload. The exit code is 1 if a find has no reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.leniency", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names: bernoulli, _foreach; none: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=20, help="of each overload")
    parser.add_argument("--source", choices=("random", "samples"), default="random")
    given = parser.parse_args()
    made = refused = 0
    finds: list[dict[str, str]] = []
    for told in hunt(given.source, given.seed, given.calls, given.names):
        made += told.get("made", 0)
        refused += told.get("refused", 0)
        finds += told.get("found", [])
        if "crash" in told:
            print(f"the process ended in {told['crash']}: {told['call']}", flush=True)
        for find in told.get("found", []):
            if not find["why"]:
                print(f"mps takes {find['call']}\n    the CPU: {find['cpu']}", flush=True)
    by_overload = {find["name"]: find["why"] for find in finds if find["why"]}
    unknown = {find["name"] for find in finds if not find["why"]}
    every = {find["name"] for find in finds}
    print(f"{made} calls, {refused} refused by the CPU; mps takes {len(finds)} of these, {len(every)} overloads")
    for why, number in Counter(by_overload.values()).most_common():
        print(f"{number:5} overloads: {why}")
    print(f"{len(unknown):5} overloads: nobody knows why")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
