"""The cases on both substrates, each in a process of its own that a crash cannot take the others with.

`python -m gpu.sides SUBSTRATE CASE...` prints a line of JSON before and after each case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import clean_environment

MAC = "M2 16GB"
SIDE = os.environ.get("ANYMPS_GPU_TESTS", "cuda")
"""What is compared with the host: `cuda`, or `host`, with which the tests themselves are tried without a GPU."""

FAILED = "the case failed: "
PATIENCE = 400.0
_TESTS = Path(__file__).resolve().parents[1]


def run(substrate: str, names: list[str]) -> dict[str, Any]:
    """The result of each case; one that ended its process is a text that says how."""
    found: dict[str, Any] = {}
    todo = list(names)
    while todo:
        status, lines, said = _process(substrate, todo)
        for line in lines:
            found.update(json.loads(line))
        done = [name for name in todo if name in found]
        todo = todo[len(done) :]
        if todo:
            found[todo.pop(0)] = f"the process ended with {status}: {said}"
    return found


def environment(substrate: str) -> dict[str, str]:
    """For a process on this substrate. `tests` is on its path."""
    base = clean_environment()
    paths = [str(_TESTS), base.get("PYTHONPATH", "")]
    return {**base, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "ANYMPS_SUBSTRATE": substrate}


def _process(substrate: str, names: list[str]) -> tuple[object, list[str], str]:
    command = [sys.executable, "-m", "gpu.sides", substrate, *names]
    try:
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment(substrate), timeout=PATIENCE
        )
        status, out, err = ended.returncode, ended.stdout, ended.stderr
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        status, err = f"no end after {PATIENCE:g} s", ""  # type: ignore[assignment]
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return status, lines, (err.strip().splitlines() or ["no message"])[-1]


def main() -> None:
    """Runs the cases of the command line on a substrate."""
    substrate, *names = sys.argv[1:]
    import torch

    import anymps

    anymps.enable(MAC, substrate=substrate, fallback=True, quiet=True)
    torch.set_num_threads(1)
    from gpu.cases import CASES

    for name in names:
        torch.manual_seed(0)
        try:
            result = CASES[name]()
        except Exception as error:
            result = f"{FAILED}{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        print(json.dumps({name: result}), flush=True)


if __name__ == "__main__":
    main()
