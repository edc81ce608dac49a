"""A recording of a million entries in every form of a report: seconds, and the size of what is written.

    python benchmarks/million_entries.py [--entries N] [--steps N] [--keep FOLDER]

The recording is made up: steps of forward, backward and optimizer with a fallback in every two hundred operators, a
read at the end of each step, 400 lines in 20 files, 200 modules, totals as the tape writes them, and as many buffers of
memory as a recording keeps one by one. Each form is written by a process of its own
(`anymps report FILE --format FORM`), start of Python included. The budget is 10 s of one core for each, which depends
less on what else the machine does than the clock on the wall, and 10 MB for the page. Each form is written once more
from the same recording without a release of torch, for which nothing is predicted: the difference is what predicting
takes, and its budget is 5 s. With `--steps 1` the step that is predicted has all the entries; only that budget holds
then. Needs no torch.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from anymps._settings import FORMATS
from anymps.capture._recorder import ALLOCATION_LIMIT
from anymps.record import Direction, Fate, Phase, RecordingBuilder, RecordingWriter, Wait

SECONDS = 10.0
PREDICTING = 5.0
PAGE_BYTES = 10_000_000
FILES, LINES, MODULES = 20, 400, 200
OPERATORS = [
    "abs", "add", "ceil", "cos", "div", "eq", "erf", "exp", "floor", "ge", "gelu", "gt", "le",
    "log", "lt", "mul", "ne", "neg", "relu", "sigmoid", "silu", "sin", "sqrt", "sub", "tanh",
]  # fmt: skip
CALL_NS, GAP_NS, BUFFER = 4_000, 1_000, 4_096
TENSORS = {"inputs": ["float32[8, 128]"], "outputs": ["float32[8, 128]"]}
META = {
    "mac": "M3 Pro 18GB", "virtual": True, "torch_version": "2.13.0", "directory": "/home/me", "ending": {"status": 0},
    "script": "/home/me/train.py",
}  # fmt: skip


def make(path: Path, entries: int, steps: int, meta: dict[str, object] = META) -> None:
    """Write the recording."""
    writer = RecordingWriter(path, meta)
    builder = RecordingBuilder(writer)
    totals: Counter[tuple[int, ...]] = Counter()
    buffers = 0
    lines = [builder.site(f"/home/me/m{n % FILES}.py", n, "forward", f"x = layer_{n}(x)") for n in range(1, LINES + 1)]
    modules = [builder.module(f"block.{n}", "Block") for n in range(MODULES)]
    per_step = entries // steps
    backward, optimizer = int(per_step * 0.4), int(per_step * 0.9)
    clock = 0
    for step in range(steps):
        first = step * backward
        alive: list[int] = []
        for n in range(per_step):
            fallback, read = n % 200 == 7, n == per_step - 1
            phase = Phase.FORWARD if n < backward else Phase.BACKWARD if n < optimizer else Phase.OPTIMIZER
            sequence = {Phase.FORWARD: first + n, Phase.BACKWARD: first + max(2 * backward - n, 0)}.get(phase, -1)
            phase = Phase.LOSS_READ if read else phase
            operator, fate = (
                "aten::_local_scalar_dense" if read else f"aten::{OPERATORS[n % len(OPERATORS)]}",
                Fate(int(fallback)),
            )
            wait = Wait.ITEM if read else Wait.FALLBACK if fallback else Wait.NONE
            direction = Direction.MPS_TO_CPU if read else Direction.NONE
            site, module = lines[n % LINES], modules[n % MODULES]
            builder.entry(
                operator, start_ns=clock, duration_ns=CALL_NS, phase=phase, sequence=sequence, fate=fate, wait=wait,
                direction=direction, site=site, module=module, thread=int(phase is Phase.BACKWARD), **TENSORS,
            )  # fmt: skip
            signature = builder._signature(operator, fate, **TENSORS)
            totals[signature, module, site, int(phase), int(wait), int(direction)] += 1
            if phase is Phase.FORWARD and buffers < ALLOCATION_LIMIT:
                held = (len(alive) + 1) * BUFFER
                alive.append(builder.allocation(
                    BUFFER, operator, time_ns=clock, allocated=held, phase=phase, site=site, module=module
                ))  # fmt: skip
                buffers += 1
            elif phase is Phase.BACKWARD and alive:
                builder.free(alive.pop(), time_ns=clock, phase=phase)
            clock += CALL_NS + GAP_NS
        builder.end_step(clock)
        builder.flush()
    writer.add("totals", [(*key, count, count * CALL_NS, 0) for key, count in totals.items()])
    builder.close().close()


def report(recording: Path, form: str, output: Path) -> tuple[float, float, float]:
    """Write one form: seconds of one core, seconds on the wall, and the most memory of any process so far in MB."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "anymps", "report", str(recording)]
    subprocess.run([*command, "--format", form, "--output", str(output)], check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, after.ru_maxrss / 1024


def main() -> int:
    """Make the recording, write every form, print a table; 1 if a budget is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave recording and reports here")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        recording, unpredicted = folder / "million.anymps", folder / "unpredicted.anymps"
        make(recording, options.entries, options.steps)
        make(unpredicted, options.entries, options.steps, {**META, "torch_version": ""})
        print(f"{options.entries:,} entries, {options.steps:,} steps, {recording.stat().st_size / 1e6:.0f} MB")
        print("form        CPU s   wall s  predicting, CPU s        MB  most memory of any so far, MB")
        for form in FORMATS:
            output = folder / f"million.{form}"
            cpu, wall, memory = report(recording, form, output)
            size = output.stat().st_size
            predicting = cpu - report(unpredicted, form, folder / f"unpredicted.{form}")[0]
            over = predicting > PREDICTING or (options.steps > 1 and cpu > SECONDS)
            over |= form == "html" and size > PAGE_BYTES
            failed += over
            numbers = f"{cpu:9.2f}{wall:9.2f}{predicting:19.2f}{size / 1e6:10.2f}{memory:10.0f}"
            print(f"{form:10}{numbers}{'  over budget' if over else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
