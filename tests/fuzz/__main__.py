"""The fuzzer's own command line: `python -m tests.fuzz --seconds 600 --seed 7`."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fuzz.targets import TARGETS  # noqa: E402
from processes import SOURCE_ROOT  # noqa: E402

_PATIENCE = 120.0  # seconds of the clock for a case; the limit of processor time ends it earlier
_CASES = 3000  # of one process


class Worker:
    """A process for cases of these targets. It is started again after each death."""

    def __init__(self, targets: Sequence[str], program: Sequence[str] = ("-m", "fuzz.worker")) -> None:
        self._command = [sys.executable, *program, *targets]
        self._process: subprocess.Popen[str] | None = None
        self._cases = 0

    def ask(self, target: str, file: Path) -> dict[str, Any]:
        """What a case came to."""
        if self._process is None or self._cases >= _CASES:
            self.close()
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._cases += 1
        self._process.stdin.write(json.dumps({"target": target, "file": str(file)}) + "\n")
        self._process.stdin.flush()
        return self._answer(_PATIENCE)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        self._process, self._cases = None, 0

    def _start(self) -> None:
        paths = f"{HERE.parent}{os.pathsep}{SOURCE_ROOT}"
        environment = {
            **os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
            "PYTHONFAULTHANDLER": "", "NO_COLOR": "1", "PYTHONUTF8": "1",
        }  # fmt: skip
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
            cwd=HERE.parent, env=environment,
        )  # fmt: skip
        answer = self._answer(600)
        if not answer.get("ready"):
            raise SystemExit(f"the fuzzer cannot begin: {answer}")

    def _answer(self, patience: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience)
        line = self._process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if not ready:
            self._process.kill()
        status = self._process.wait()
        self.close()
        words = {-27: "more than 30 s of processor time"}.get(status, f"the process died: {status}")
        return {"wrong": words if ready else "more than 120 s of the clock", "status": status}


def cases(targets: Sequence[str], seed: int) -> Iterator[tuple[str, bytes]]:
    """Cases without end: of each target in turn. The same seed gives the same ones."""
    number = 0
    while True:
        for name in targets:
            yield name, TARGETS[name].case(Random(f"{seed}/{name}/{number}"))
        number += 1


def fuzz(targets: Sequence[str], seconds: float, seed: int, keep: Path, most: int | None = None) -> list[Path]:
    """Run cases for so long, or `most` of them; the files of those that failed, of one kind at most three."""
    worker, seen, failed, done = Worker(targets), Counter[str](), [], Counter[str]()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-case-") as folder:
        file = Path(folder, "case")
        try:
            for name, data in cases(targets, seed):
                if time.monotonic() >= end or (most is not None and sum(done.values()) >= most):
                    break
                file.write_bytes(data)
                answer = worker.ask(name, file)
                done[name] += 1
                if answer["wrong"]:
                    last = str(answer.get("stderr", "")).strip().splitlines()[-1:] or [""]
                    kind = f"{name}: {answer['wrong']}: {last[0][:100]}"
                    seen[kind] += 1
                    if seen[kind] <= 3:
                        keep.mkdir(parents=True, exist_ok=True)
                        kept = keep / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
                        kept.write_bytes(data)
                        failed.append(kept)
                        _tell(kept, answer)
        finally:
            worker.close()
    print(
        f"{sum(done.values()):,} cases, seed {seed}: {', '.join(f'{name} {count:,}' for name, count in done.items())}"
    )
    for kind, count in seen.most_common():
        print(f"{count:6,} {kind}")
    return failed


def _tell(file: Path, answer: dict[str, Any]) -> None:
    print(f"FAILED {answer['wrong']}: anymps {' '.join(map(str, answer.get('words', ['?'])))}")
    print("  " + "\n  ".join(str(answer.get("stderr", "")).rstrip().splitlines()[-25:]))
    print(f"  again: python -m tests.fuzz --replay {file}", flush=True)


def main() -> int:
    """0 if all went well, 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="another one, other cases")
    parser.add_argument("--only", action="append", choices=sorted(TARGETS), help="this kind of file; may be repeated")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where files that fail are kept")
    parser.add_argument("--replay", type=Path, nargs="+", help="files that failed, instead of new ones")
    chosen = parser.parse_args()
    if not chosen.replay:
        return int(bool(fuzz(chosen.only or list(TARGETS), chosen.seconds, chosen.seed, chosen.keep)))
    bad = False
    for file in chosen.replay:
        name = file.name.partition("-")[0]
        worker = Worker([name])
        answer = worker.ask(name, file.absolute())
        worker.close()
        bad = bad or bool(answer["wrong"])
        _tell(file, answer) if answer["wrong"] else print(f"{file}: well")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
