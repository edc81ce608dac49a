"""What the virtual device costs on an NVIDIA GPU: ratios to plain CUDA, whose steps run in a process of their own.

    python benchmarks/overhead.py --substrate cuda [--rounds N] [--only WORDS[,WORDS]...] [--also NAME]... [--json FILE]

Plain CUDA, the device, and the device with its recording are three processes, since torch.cuda is hidden where the
device is on. They prepare the same step, and then take turns: in each round every process times one block of steps, so
that a change of the GPU's clock meets all alike. A block is a few steps between two events, with a synchronise at its
end; the device's time is of the same wall clock, as events on mps are the Mac's. A ratio is the median over rounds of
(contender / plain CUDA) in the same round. float32 with TF32 off, as on the device, for both. Only one process computes
at a time. `--also deterministic` adds plain CUDA with cuDNN's deterministic algorithms, which the device takes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(_TESTS))

from gpu import models  # noqa: E402

CONTENDERS = ("plain", "device", "recorded")
MORE = {"deterministic": "plain and deterministic"}
UNFUSED: dict[str, Any] = {"foreach": False}
CASES: dict[str, tuple[Any, tuple[int, ...], dict[str, Any], int]] = {
    # name: model, sizes, how AdamW is made, steps of a block
    "GPT d=128 T=64 B=4 L=4, foreach=False": (models.gpt, (128, 64, 4, 4), UNFUSED, 20),
    "GPT d=1024 T=512 B=8 L=8, foreach=False": (models.gpt, (1024, 512, 8, 8), UNFUSED, 3),
    "GPT d=4096 T=1024 B=4 L=2, foreach=False": (models.gpt, (4096, 1024, 4, 2), UNFUSED, 2),
    "GPT d=128 T=64 B=4 L=4, AdamW as it comes": (models.gpt, (128, 64, 4, 4), {}, 20),
    "GPT d=128 T=64 B=4 L=4, foreach=True": (models.gpt, (128, 64, 4, 4), {"foreach": True}, 20),
    "GPT d=128 T=64 B=4 L=4, fused=True": (models.gpt, (128, 64, 4, 4), {"fused": True}, 20),
    "GPT d=1024 T=512 B=8 L=8, fused=True": (models.gpt, (1024, 512, 8, 8), {"fused": True}, 3),
    "convolutional network, 64 channels, 64 images of 128²": (models.convnet, (64, 128, 64, 4), UNFUSED, 4),
    "ViT d=384 L=8, 64 images of 128²": (models.vit, (384, 128, 64, 8), UNFUSED, 5),
    "LSTM d=512 L=2 T=128 B=32": (models.lstm, (512, 128, 32, 2), UNFUSED, 4),
    "diffusion U-Net, 64 channels, 16 images of 64²": (models.unet, (64, 64, 16, 3), UNFUSED, 4),
    "GPT of 1.5 billion weights, T=512 B=1": (models.gpt, (2048, 512, 1, 29), {"fused": True}, 2),
}
LARGE = ("GPT of 1.5 billion weights, T=512 B=1",)
ROUNDS = 15
WARM_UP = 3  # blocks that do not count


def work(name: str) -> None:
    """A contender: prepares steps by name, and runs a block for each line of standard input."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device, core = "cuda", None
    torch.backends.cudnn.deterministic = name == MORE["deterministic"]
    if not name.startswith("plain"):
        import anymps

        anymps.enable("M3 Ultra 512GB", substrate="cuda", quiet=True)
        device = "mps"
        if name == "recorded":
            anymps.record().__enter__()
            core = anymps.device.native()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    step: Any = None
    wait = torch.mps.synchronize if device == "mps" else torch.cuda.synchronize

    def block(steps: int) -> float:
        wait()
        gc.collect()
        gc.disable()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        gc.enable()
        return (time.perf_counter() - began) / steps

    for line in sys.stdin:
        order, *rest = json.loads(line)
        try:
            if order == "prepare":
                make, sizes, how, _ = CASES[rest[0]]
                step = None
                gc.collect()
                (torch.mps if device == "mps" else torch.cuda).empty_cache()
                step = models.make_step(make, device, *sizes, **how)
                losses = [float(step()) for _ in range(3)]
                told: Any = {"losses": losses, "weights": _weights(make, sizes)}
            elif order == "drop":
                step, told = None, {}
                gc.collect()
                (torch.mps if device == "mps" else torch.cuda).empty_cache()
            else:
                told = {"seconds": block(rest[0])}
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        print(json.dumps(told), file=answers)
    del core


def _weights(make: Any, sizes: tuple[int, ...]) -> int:
    import torch

    with torch.device("meta"):
        model, *_ = make("meta", *sizes)
    return sum(parameter.numel() for parameter in model.parameters())


class Contender:
    """A process that runs steps when it is told to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", self.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *order: object) -> dict[str, Any]:
        """What it answers; `error` if it cannot, also because it has ended: then a new process is there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(order), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            status = self._process.wait()
            self._start()
            return {"error": f"the process ended with {status}"}
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


Times = dict[str, list[float]]


def turns(name: str, contenders: list[Contender], rounds: int) -> tuple[dict[str, Any], Times]:
    """What each tells of the prepared step, and its seconds round by round. Raises RuntimeError if one cannot."""
    steps = CASES[name][3]
    times: Times = {it.name: [] for it in contenders}
    prepared = {it.name: _asked(it, "prepare", name) for it in contenders}
    for number in range(WARM_UP + rounds):
        # Whoever is first in a round finds the GPU as the last round left it: they take turns at that.
        first = number % len(contenders)
        for it in contenders[first:] + contenders[:first]:
            told = _asked(it, "run", steps)
            if number >= WARM_UP:
                times[it.name].append(told["seconds"])
    return prepared, times


def _asked(contender: Contender, *order: object) -> dict[str, Any]:
    told = contender.ask(*order)
    if "error" in told:
        raise RuntimeError(f"{contender.name}: {told['error']}")
    return told


def measure(name: str, contenders: list[Contender], rounds: int) -> dict[str, Any]:
    """Milliseconds of a plain step, the ratio of each contender, and the losses of the first steps."""
    plain = contenders[0]
    # Three times the weights, gradients and moments of the largest do not fit on a GPU: two at a time.
    groups = [[plain, it] for it in contenders[1:]] if name in LARGE else [contenders]
    row: dict[str, Any] = {"step": name, "losses": {}}
    for group in groups:
        try:
            prepared, times = turns(name, group, rounds)
        except RuntimeError as error:
            row.setdefault("errors", []).append(str(error))
            continue
        finally:
            for it in group:
                it.ask("drop")
        usual = statistics.median(times["plain"])
        row |= {"weights": prepared["plain"]["weights"], "plain_ms": 1e3 * usual, "rounds": rounds}
        row["spread"] = [min(times["plain"]) / usual, max(times["plain"]) / usual]
        row["losses"] |= {it: told["losses"] for it, told in prepared.items()}
        for it in group[1:]:
            row[it.name] = statistics.median(b / a for a, b in zip(times["plain"], times[it.name], strict=True))
            row[f"{it.name}_ms"] = 1e3 * statistics.median(times[it.name])
    losses = row["losses"]
    if "device" in losses and CASES[name][0] is not models.unet:  # which draws noise, of which each has its own
        row["losses_off"] = max(abs(a / b - 1) for a, b in zip(losses["device"], losses["plain"], strict=True))
    return row


def main(rounds: float, only: str, path: Path | None, also: Sequence[str] = ()) -> None:
    """Measures all cases, a line each, as they come."""
    import torch

    from anymps.device._gpus import take_gpu

    card = take_gpu()
    print(f"torch {torch.__version__}, {card.name}; ratios to plain CUDA, medians of interleaved blocks of steps")
    names = [*CONTENDERS, *(MORE[it] for it in also)]
    print(" | ".join(["training step | weights | plain ms | device | device + recording", *names[3:], "losses off by"]))
    contenders = [Contender(name) for name in names]
    found = []
    for name in CASES:
        if only and not any(words in name for words in only.split(",")):
            continue
        row = measure(name, contenders, max(3, round(ROUNDS * rounds)))
        found.append(row)
        cells = [name, f"{row.get('weights', 0) / 1e6:.1f} M", f"{row.get('plain_ms', 0):.2f}"]
        cells += [f"{row[it]:.3f}" if it in row else "" for it in names[1:]]
        cells.append(f"{row['losses_off']:.1e}" if "losses_off" in row else "")
        print(" | ".join([*cells, *row.get("errors", [])]), flush=True)
        if path is not None:
            path.write_text(json.dumps({"torch": torch.__version__, "card": card.name, "rows": found}, indent=1) + "\n")
    for it in contenders:
        it.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    work(parser.parse_args().work)
