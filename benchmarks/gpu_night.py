"""A night's training on an NVIDIA GPU under the rules of an M2 with 16 GB, and its first steps beside the host's.

    python benchmarks/gpu_night.py [--steps N] [--first N] [--out FOLDER]

Trains gpu_night_train.py to its end on the GPU, while the host makes its first steps; then the GPU makes the same
first steps, and both recordings are compared: losses, findings, waits, memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("gpu_night_train.py")
MAC = "M2 16GB"


def run(substrate: str, steps: int, record: Path) -> subprocess.Popen[str]:
    """The training on a substrate, recorded."""
    command = [sys.executable, "-m", "anymps", "run", "--mac", MAC, "--record", str(record), str(SCRIPT)]
    environment = {**os.environ, "ANYMPS_SUBSTRATE": substrate}
    return subprocess.Popen(
        [*command, "--steps", str(steps)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def ended(process: subprocess.Popen[str], began: float) -> dict[str, Any]:
    """What it printed: losses by step, seconds of the whole process and of the training alone."""
    out, err = process.communicate()
    losses = {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)", out, re.M)}
    after = re.findall(r"after (\S+) s$", out, re.M)
    held = re.search(r"^held out loss (\S+)", out, re.M)
    return {
        "status": process.returncode,
        "seconds": time.monotonic() - began,
        "training_seconds": float(after[-1]) if after else 0.0,
        "losses": losses,
        "held_out": float(held[1]) if held else None,
        "first_line": out.partition("\n")[0],
        "report": err,
    }


def summary(path: Path) -> dict[str, Any]:
    """Findings, waits and memory of a recording."""
    from anymps.findings import find
    from anymps.record import Recording

    with Recording.open(path) as recording:
        peak = recording.memory_story.peak
        return {
            "findings": sorted(
                f"{it.id} {Path(it.site.file).name}:{it.site.line} {it.count}" for it in find(recording)
            ),
            "waits": sorted(f"{it.operator} :{it.site.line} {it.count}" for it in recording.waits()),
            "peak": peak.allocated if peak is not None else None,
            "steps": recording.complete_steps,
            "calls": recording.entry_count,
        }


def main() -> int:
    """Runs all of it; 1 if a run failed or the first steps differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5000, help="of the whole training")
    parser.add_argument("--first", type=int, default=100, help="steps that the host makes, too")
    parser.add_argument("--substrate", default="cuda", help="of the whole training: host to try this program")
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.monotonic()
        host = run("host", options.first, folder / "host.anymps")
        whole = ended(run(options.substrate, options.steps, folder / "whole.anymps"), began)
        print(whole["report"])
        print(f"whole: {options.steps} steps, {whole['training_seconds']:.1f} s, losses {whole['losses']}")
        print(f"held out: {whole['held_out']}; {whole['first_line']}", flush=True)
        began = time.monotonic()
        card = ended(run(options.substrate, options.first, folder / "card.anymps"), began)
        told = {"whole": whole, "card": card, "host": ended(host, began)}
        for side in ("card", "host"):
            if not told[side]["status"]:
                told[side] |= summary(folder / f"{side}.anymps")
    (options.out / "night.json").write_text(json.dumps(told, indent=1) + "\n")
    failed = [side for side, it in told.items() if it["status"]]
    for side in failed:
        print(f"{side} ended with {told[side]['status']}: {told[side]['report'][-2000:]}")
    if failed:
        return 1
    one, other = told["card"], told["host"]
    off = max(abs(one["losses"][step] / loss - 1) for step, loss in other["losses"].items())
    seconds = one["training_seconds"], other["training_seconds"]
    print(f"first {options.first} steps: {seconds[0]:.1f} s on the GPU, {seconds[1]:.1f} s here")
    print(f"losses are off by {off:.1e} at most: {other['losses']} {one['losses']}")
    alike = True
    for what in ("findings", "waits", "peak", "steps", "calls"):
        same = one[what] == other[what]
        alike &= same
        print(f"{what}: {'the same: ' if same else 'DIFFERENT: '}{one[what]}{'' if same else f' and {other[what]}'}")
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
