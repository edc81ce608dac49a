"""What the virtual device and its recording cost: ratios to plain CPU torch, beside torch.profiler and a dispatch mode.

    python benchmarks/overhead.py [--rounds N] [--small]
    python benchmarks/overhead.py --substrate cuda [--rounds N] [--only WORDS[,WORDS]...] [--also NAME]... [--json FILE]

With `--substrate cuda` the steps run on an NVIDIA GPU, beside plain CUDA: see overhead_cuda.py.

One interleaved run: every round times one training step of each contender, one after the other, so that a change of
the machine's speed meets them all alike. A ratio is the median over rounds of (contender / plain CPU) in the same
round. One thread. The model is a GPT of pre-norm blocks with 4 heads and explicit softmax attention, trained by AdamW,
foreach=False. The profiler and the dispatch mode wrap only their own step. The last column is the device recorded as
on a real Mac, by an observer, against the same step on the device alone: what a Mac's own step pays for it. It is
measured after the others, in turns with the plain step; its budget is 1.4, 1.08 and 1.02.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import anymps

VOCABULARY = 64
HEADS = 4
SIZES = (  # (width, positions, batch, layers), rounds, budget of device, budget of device and recording
    ((32, 16, 2, 4), 300, 1.02, 1.08),
    ((128, 64, 4, 4), 80, 1.015, 1.04),
    ((384, 128, 8, 4), 10, 1.005, 1.015),
)
CONTENDERS = ("device", "device + recording", "torch.profiler", "TorchDispatchMode", "observer")


class Block(nn.Module):
    """A pre-norm transformer block; [B, T, D] to [B, T, D]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, positions, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, positions, HEADS, width // HEADS).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // HEADS)
        weights = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, positions, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Token and position embeddings, blocks, a head; [B, T] tokens to [B, T, V] logits."""

    def __init__(self, width: int, positions: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", torch.ones(positions, positions, dtype=torch.bool).triu(1))
        self.register_buffer("index", torch.arange(positions))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(self.index)
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def make_step(device: str, width: int, positions: int, batch: int, layers: int) -> Callable[[], None]:
    """One training step on a device, everything else prepared."""
    torch.manual_seed(0)
    model = GPT(width, positions, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.randint(0, VOCABULARY, (batch, positions)).to(device)
    targets = torch.randint(0, VOCABULARY, (batch * positions,)).to(device)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(tokens).view(-1, VOCABULARY), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class PassThrough(TorchDispatchMode):
    """The cheapest dispatch mode there can be."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


class CountingMode(TorchDispatchMode):
    """Counts operators."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


def timed(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure(shape: tuple[int, int, int, int], rounds: int) -> tuple[int, float, dict[str, float]]:
    """Operators of a CPU step, its median in ms, and the ratio of every contender."""
    on_cpu, on_mps = make_step("cpu", *shape), make_step("mps", *shape)
    with CountingMode() as counter:
        on_cpu()
    recorded = make_step("mps", *shape)
    times: dict[str, list[float]] = {name: [] for name in ("cpu", *CONTENDERS)}
    capture = anymps.record()
    for _ in range(3):
        on_cpu(), on_mps()
    with capture:
        core = anymps.device.native()
        for _ in range(3):
            recorded()
        gc.collect()
        gc.disable()
        for index in range(rounds):
            # The tape is stopped for everyone but the contender that it is measured on; its hooks stay in place, and
            # are without effect then.
            core.tape_pause(True)
            times["cpu"].append(timed(on_cpu))
            times["device"].append(timed(on_mps))
            core.tape_pause(False)
            times["device + recording"].append(timed(recorded))
            core.tape_pause(True)
            if index % 4 == 0:  # slow ones: fewer rounds are enough
                with profile(activities=[ProfilerActivity.CPU]):
                    times["torch.profiler"].append(timed(on_cpu))
                with PassThrough():
                    times["TorchDispatchMode"].append(timed(on_cpu))
            core.tape_pause(False)
        gc.enable()
    cpu = times["cpu"]
    ratios = {}
    for name in CONTENDERS[:-1]:
        base = cpu if len(times[name]) == len(cpu) else cpu[::4]
        ratios[name] = statistics.median(b / a for a, b in zip(base, times[name], strict=True))
    ratios[CONTENDERS[-1]] = measure_observer(on_mps, max(5, rounds // 2))
    return counter.count, statistics.median(cpu) * 1e3, ratios


def measure_observer(on_mps: Callable[[], None], rounds: int) -> float:
    """The ratio of observed steps to those of the same device that nobody records, in turns."""
    ratios = []
    with anymps.record(source="observer") as capture:
        for _ in range(3):
            on_mps()
        for _ in range(rounds):
            capture.core.stop_observing()
            capture.core.tape_pause(True)
            plain = timed(on_mps)
            capture.core.tape_pause(False)
            capture.core.observe(capture.core._raised, capture.core._met)
            ratios.append(timed(on_mps) / plain)
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=float, default=1.0, help="factor on the number of rounds")
    parser.add_argument("--small", action="store_true", help="only the smallest model")
    parser.add_argument("--substrate", choices=("host", "cuda"), default="host", help="where the device computes")
    parser.add_argument(
        "--only", default="", help="with cuda: only steps whose name has these words; commas part several"
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        choices=("deterministic",),
        help="with cuda: one more contender",
    )
    parser.add_argument("--json", type=Path, help="with cuda: where to write the numbers")
    arguments = parser.parse_args()
    if arguments.substrate == "cuda":
        import overhead_cuda

        overhead_cuda.main(arguments.rounds, arguments.only, arguments.json, also=arguments.also)
        return
    torch.set_num_threads(1)
    anymps.enable()
    print(f"torch {torch.__version__}, one thread; ratios to plain CPU torch, medians of interleaved steps")
    header = "training step", "ops", "cpu ms", *CONTENDERS, "budget device", "budget recording"
    print(" | ".join(header))
    for shape, rounds, device_budget, recording_budget in SIZES[: 1 if arguments.small else None]:
        operators, milliseconds, ratios = measure(shape, max(5, round(rounds * arguments.rounds)))
        width, positions, batch, layers = shape
        cells = [f"GPT d={width} T={positions} B={batch} L={layers}", str(operators), f"{milliseconds:.2f}"]
        cells += [f"{ratios[name]:.3f}" for name in CONTENDERS]
        print(" | ".join([*cells, f"{device_budget:.3f}", f"{recording_budget:.3f}"]), flush=True)


if __name__ == "__main__":
    main()
