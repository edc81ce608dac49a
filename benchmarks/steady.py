"""Whether a prediction stays the same on a busy machine: runs of five scripts alone, and beside busy processes.

    python benchmarks/steady.py [--runs N] [--busy N] [--cores 0,1]

Each run is recorded by a process of its own. Quiet and busy runs take turns, so that a change of the machine's speed
meets both alike. For each script the table has the median of the quiet runs' predictions, the furthest of all from it,
and the names of what binds the step. The aim: the busy runs lie within 25 % of the quiet median, and the name is the
same. The processes are held to the cores that are given (all by default), and share them with what else runs there:
`waited` is the share of its own code's time in which the program was kept from a core, as the recording tells it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from anymps.forecast import forecast
from anymps.record import Recording

AIM = 0.25

TRAINING = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to("mps")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    x = torch.randn(32, 64, device="mps")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
"""

CACHE = """
import torch
from torch import nn
width, heads = 128, 4
project, out = nn.Linear(width, 3 * width).to("mps"), nn.Linear(width, width).to("mps")
keys = torch.zeros(1, heads, 0, width // heads, device="mps")
values = keys
token = torch.randn(1, 1, width, device="mps")
with torch.no_grad():
    for step in range(60):
        q, k, v = project(token).view(1, 1, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        mixed = nn.functional.scaled_dot_product_attention(q, keys, values)
        token = out(mixed.transpose(1, 2).reshape(1, 1, width))
        int(token.argmax())
"""

LOADER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(320, 1, 28, 28), torch.randint(0, 10, (320,)))
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(5408, 10)).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in DataLoader(data, batch_size=16, shuffle=True):
    loss = nn.functional.cross_entropy(model(images.to("mps")), labels.to("mps"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

OWN_CODE = """
import torch
from torch import nn
words = [f"word{number}" for number in range(2000)]
model = nn.Embedding(5000, 64).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    numbers = [hash(word + str(step)) % 5000 for word in words for _ in range(10)]
    loss = model(torch.tensor(numbers[:512], device="mps")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

FALLBACK = """
import torch
x = torch.randn(200, 200, device="mps")
weight = torch.randn(200, 200, device="mps", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
for step in range(12):
    values = torch.linalg.svdvals((x @ weight).detach())
    loss = (x @ weight).square().mean() * values.max()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

_BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""

SCRIPTS = {"training": TRAINING, "cache": CACHE, "loader": LOADER, "own code": OWN_CODE, "fallback": FALLBACK}


class Told(NamedTuple):
    """What a run's recording predicts: seconds of a step, their interval, what binds it, and how busy it was here."""

    seconds: float
    low: float
    high: float
    bound: str
    waited: float


def main() -> int:
    """Run it all; 1 where the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="of each script, quiet and busy each")
    parser.add_argument("--busy", type=int, default=4, help="processes that do nothing but run")
    parser.add_argument("--cores", default="", help="to which all is held, such as 0,1")
    parser.add_argument("--keep", type=Path, help="a folder for the recordings")
    parser.add_argument("--only", default="", help="scripts, separated by commas")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    chosen = options.only.split(",") if options.only else list(SCRIPTS)
    found: dict[str, tuple[list[Told], list[Told]]] = {name: ([], []) for name in chosen}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for name in chosen:
            (folder / f"{name}.py").write_text(SCRIPTS[name], encoding="utf-8")
        for number in range(options.runs):
            for name in chosen:
                found[name][0].append(told(folder, name, f"quiet{number}"))
            with_busy = busy_processes(options.busy)
            try:
                for name in chosen:
                    found[name][1].append(told(folder, name, f"busy{number}"))
            finally:
                for process in with_busy:
                    process.kill()
                    process.wait()
    missed = False
    print("script     quiet      off when quiet, busy  waited quiet, busy  bound by")
    for name, (quiet, busy) in found.items():
        usual = statistics.median(it.seconds for it in quiet)
        off = [max((it.seconds / usual - 1 for it in runs), key=abs) for runs in (quiet, busy)]
        waited = [statistics.median(it.waited for it in runs) for runs in (quiet, busy)]
        bounds = sorted({it.bound for it in quiet + busy})
        missed |= abs(off[1]) > AIM or len(bounds) > 1
        print(
            f"{name:10} {1e3 * usual:6.3f} ms {off[0]:+13.0%} {off[1]:+6.0%} {waited[0]:12.0%} {waited[1]:6.0%}   "
            f"{', '.join(bounds)}"
        )
    return int(missed)


def busy_processes(number: int) -> list[subprocess.Popen[bytes]]:
    """Processes that keep cores busy while this one lives."""
    return [subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(number)]


def told(folder: Path, name: str, run: str) -> Told:
    """Run and record a script; what its recording predicts."""
    path = folder / f"{name} {run}.anymps"
    subprocess.run(
        [sys.executable, "-m", "anymps", "run", "--record", str(path), f"{name}.py"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    )
    with Recording.open(path) as recording:
        it = forecast(recording)
        return Told(it.time.seconds, it.time.low, it.time.high, it.bound, it.busy)


if __name__ == "__main__":
    sys.exit(main())
