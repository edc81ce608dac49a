"""What a training step costs under `kernels="real"`: its ratio to the same step on the CPU's kernels.

    python benchmarks/real_kernels.py [--rounds N]

Needs the kernels of the installed torch (anymps kernels add). Each program runs in two processes, one of each kind,
which take their steps in turns, so that a change of the machine's speed meets both alike. A ratio is the median over
rounds of (real / cpu) of processor time in the same round, on one thread. The GPT is that of overhead.py; the optimizer
is AdamW with foreach=False.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from overhead import make_step
from torch import nn

import anymps

WARM = 40  # steps, after which nothing is described for the first time


def trained(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """A step of a classifier of ten kinds."""
    model, x = model.to("mps"), x.to("mps")
    kinds = torch.randint(0, 10, (len(x),)).to("mps")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        nn.functional.cross_entropy(model(x), kinds).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def mlp() -> Callable[[], None]:
    """Three layers with GELU, 64 rows."""
    layers = (nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
    return trained(nn.Sequential(*layers), torch.randn(64, 64))


def conv() -> Callable[[], None]:
    """Two convolutions, 16 images of 32 x 32."""
    first = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return trained(nn.Sequential(*first, *second), torch.randn(16, 3, 32, 32))


PROGRAMS: dict[str, Callable[[], Callable[[], None]]] = {
    "mlp": mlp,
    "conv": conv,
    "gpt, 32 wide": lambda: make_step("mps", 32, 16, 2, 4),
    "gpt, 64 wide": lambda: make_step("mps", 64, 32, 8, 2),
}


def serve(kernels: str, program: str) -> None:
    """Takes a step for each line of the input, and prints the processor time; at the end the share of real calls."""
    anymps.enable(kernels=kernels, quiet=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = PROGRAMS[program]()
    for _ in range(WARM):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        step()
        print(time.process_time() - start, flush=True)


def measure(program: str, rounds: int) -> tuple[float, float, float]:
    """The median ratio, and the medians of both in ms."""
    command = [sys.executable, __file__, "--serve", program]
    processes = [
        subprocess.Popen([*command, "--kernels", kernels], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for kernels in ("cpu", "real")
    ]
    pairs = []
    try:
        for turn in range(rounds + 1):  # the first line says that it is ready
            times = []
            for process in processes:
                assert process.stdin is not None
                assert process.stdout is not None
                if turn:
                    process.stdin.write("\n")
                    process.stdin.flush()
                times.append(process.stdout.readline())
            if turn:
                pairs.append((float(times[0]), float(times[1])))
    finally:
        for process in processes:
            process.communicate()
    plain, real = (statistics.median(values) * 1e3 for values in zip(*pairs, strict=True))
    return statistics.median(b / a for a, b in pairs), plain, real


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--serve", metavar="PROGRAM", help=argparse.SUPPRESS)
    parser.add_argument("--kernels", default="cpu", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.kernels, arguments.serve)
        return
    print(f"torch {torch.__version__}, one thread, {arguments.rounds} rounds, processor time of a step")
    print(f"{'program':20}{'cpu ms':>10}{'real ms':>10}{'ratio':>8}")
    for program in PROGRAMS:
        ratio, plain, real = measure(program, arguments.rounds)
        print(f"{program:20}{plain:10.2f}{real:10.2f}{ratio:8.2f}", flush=True)


if __name__ == "__main__":
    main()
