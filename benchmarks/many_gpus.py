"""Ranks on NVIDIA GPUs, each a Mac of its own: losses, findings, cost beside plain CUDA, and what happens at a fault.

    python benchmarks/many_gpus.py [--ranks N[:STEPS]...] [--steps N] [--timed N] [--fault-ranks N] [--out FOLDER]

Works with any number of GPUs: ranks share them if there are fewer. NCCL, which cannot share one, is measured where
every rank has its own. The losses of N ranks are compared with those of one that has the whole batch and trains for
`--steps`, or for fewer with N ranks. A time is the median of the steps after the first five; the device's is with its
recording.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("many_gpus_train.py")
MAC = "M2 16GB"
TOLERANCE = 2e-3  # of a loss: sums in another order, hundreds of times
LIMIT = 400.0  # seconds of a run
PATIENCE = 20.0  # seconds that ranks wait for one that hangs
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
LEFT = {"a full GPU": 300 << 20, "a GPU that fills up": 7 << 29}
"""Bytes of the first GPU that another process leaves; half of it where no two ranks share a GPU."""


class Ended:
    """A run: its exit code (None: it did not end in its time), lines, and seconds."""

    def __init__(self, command: list[str], limit: float = LIMIT, **more: str) -> None:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **more}, start_new_session=True,
        )  # fmt: skip
        try:
            self.out, self.err = process.communicate(timeout=limit)
            self.status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.out, self.err = process.communicate()
            self.status = None
        self.seconds = time.monotonic() - began

    @property
    def told(self) -> dict[str, Any]:
        """The line of JSON. Raises RuntimeError where there is none."""
        for line in self.out.splitlines():
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"ended with {self.status} after {self.seconds:.0f} s:\n{self.err[-3000:]}")


def device(ranks: int, record: Path, *words: str, limit: float = LIMIT, **more: str) -> Ended:
    """Ranks on the device, recorded."""
    command = ["-m", "anymps", "run", "--mac", MAC, "--record", str(record), *LAUNCHER, str(ranks), str(SCRIPT), *words]
    return Ended(command, limit, ANYMPS_SUBSTRATE="cuda", **more)


def plain(ranks: int, *words: str) -> Ended:
    """Ranks on plain CUDA."""
    return Ended([*LAUNCHER, str(ranks), str(SCRIPT), "--device", "cuda", *words])


def findings(record: Path) -> dict[str, Any]:
    """Which processes there are, on which GPUs, and which lines are seen in which of them."""
    from anymps.findings import find
    from anymps.record import Recording

    with Recording.open(record) as recording:
        return {
            "processes": {part.name: part.card for part in recording.parts},
            "findings": [
                f"{it.id} {Path(it.site.file).name}:{it.site.line} {', '.join(it.processes) or 'all'}"
                for it in find(recording)
            ],
        }


def one_side(ranks: int, steps: int, timed: int, gpus: int, folder: Path, single: list[float]) -> dict[str, Any]:
    """The device beside plain CUDA, with so many ranks. `single`: the losses of one rank, none for that one itself."""
    record = folder / f"ranks-{ranks}.anymps"
    told = device(ranks, record, "--steps", str(steps)).told
    row = {"ranks": ranks, "gpus": min(ranks, gpus), "steps": steps, "device": told, **findings(record)}
    backends = ["gloo", "nccl"] if 1 < ranks <= gpus else ["gloo"]
    for backend in backends:
        row[backend] = plain(ranks, "--steps", str(timed), "--backend", backend).told
    usual, ms = row["gloo"]["seconds"], 1e3 * told["seconds"]
    print(f"{ranks} ranks on {row['gpus']} GPUs, {told['weights']:,} weights: {ms:.1f} ms a step on the device")
    print(f"  plain CUDA: {1e3 * usual:.1f} ms, so the device costs {told['seconds'] / usual:.3f} times that")
    if "nccl" in row:
        nccl = row["nccl"]["seconds"]
        print(f"  plain CUDA with NCCL: {1e3 * nccl:.1f} ms, so gloo costs {usual / nccl:.2f} times that")
    pairs = list(zip(told["losses"], row["gloo"]["losses"], strict=False))
    print(f"  losses {told['losses'][0]:.6f} ... {told['losses'][-1]:.6f}")
    print(f"  beside plain CUDA off by {off(pairs):.1e} in {len(pairs)} steps")
    if single:
        row["off"] = off(list(zip(told["losses"], single[:steps], strict=True)))
        print(f"  beside one rank with the whole batch off by {row['off']:.1e} in {steps} steps")
    print(f"  memory of the Macs {told['memory']}; {row['processes']}")
    for finding in row["findings"]:
        print(f"  {finding}")
    sys.stdout.flush()
    return row


def off(pairs: list[tuple[float, float]]) -> float:
    """The largest relative difference."""
    return max(abs(one / other - 1) for one, other in pairs)


HOLD = """
import sys, time, torch
free, _ = torch.cuda.mem_get_info()
kept = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(3600)
"""


FAULTS = {"a rank is killed": "kill", "a rank hangs": "hang", "a Mac is full": "fill"}


def faults(ranks: int, gpus: int, folder: Path, only: Sequence[str]) -> list[dict[str, Any]]:
    """What a user reads, and how long it took, when something fails."""
    rows = []
    for name, how in FAULTS.items():
        if only and name not in only:
            continue
        words = ("--steps", "10", "--fault", how, "--patience", str(PATIENCE))
        rows.append(_fault(name, device(ranks, folder / f"{how}.anymps", *words, limit=6 * PATIENCE)))
    for name, left in LEFT.items():
        if only and name not in only:
            continue
        left = left // 2 if ranks <= gpus else left
        holder = subprocess.Popen([sys.executable, "-c", HOLD, str(left)], stdout=subprocess.PIPE, text=True)
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            more = ("--steps", "10", "--patience", str(PATIENCE))
            rows.append(_fault(name, device(ranks, folder / f"{left}.anymps", *more, limit=6 * PATIENCE)))
        finally:
            holder.kill()
            holder.wait()
    return rows


def _fault(name: str, ended: Ended) -> dict[str, Any]:
    """One line of ours or of a rank's error is what it takes."""
    said = [
        line for line in ended.err.splitlines()
        if "anymps: " in line or "Error: " in line or line.startswith(("The script", "Would"))
    ]  # fmt: skip
    print(f"{name}: ended with {ended.status} after {ended.seconds:.0f} s", flush=True)
    for line in dict.fromkeys(said):
        print(f"  {line}")
    return {"fault": name, "status": ended.status, "seconds": ended.seconds, "said": said, "err": ended.err}


def main() -> int:
    """Runs all of it; 1 if losses part or a run does not end."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", nargs="*", default=["2", "4"], metavar="N[:STEPS]")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--timed", type=int, default=40, help="steps of plain CUDA")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--fault-ranks", type=int, default=2, help="ranks of the runs that fail; 0: none")
    parser.add_argument("--only-faults", default="", help="names, separated by commas; nothing else then")
    options = parser.parse_args()
    only = [name for name in options.only_faults.split(",") if name]
    gpus = int(os.environ.get("ANYMPS_GPUS", torch.cuda.device_count()))
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "gpus": gpus}
    print(about, flush=True)
    told: dict[str, Any] = {**about, "rows": [], "faults": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        single: list[float] = []
        for asked in () if only else ("1", *options.ranks):
            ranks, _, steps = asked.partition(":")
            row = one_side(int(ranks), int(steps or options.steps), options.timed, gpus, folder, single)
            single = single or row["device"]["losses"]
            told["rows"].append(row)
            (options.out / "many-gpus.json").write_text(json.dumps(told, indent=1) + "\n")
        if options.fault_ranks:
            told["faults"] = faults(options.fault_ranks, gpus, folder, only)
            (options.out / "many-gpus.json").write_text(json.dumps(told, indent=1) + "\n")
    apart = [row["ranks"] for row in told["rows"] if row.get("off", 0.0) > TOLERANCE]
    stuck = [row["fault"] for row in told["faults"] if row["status"] is None]
    print(f"losses that part: {apart or 'none'}; runs that hang: {stuck or 'none'}")
    return 1 if apart or stuck else 0


if __name__ == "__main__":
    sys.exit(main())
