"""What a call costs the host: microseconds until it returns, in plain torch and on the device, operator by operator.

    python benchmarks/call_costs.py [--substrate cuda] [--rounds N] [--json FILE]

The tensors are tiny, so that neither a GPU nor a CPU has much to compute and only the way of a call is timed. Plain
torch (CUDA with `--substrate cuda`, else the CPU) and the device are two processes that take turns, round by round; a
number is the fastest round of each. With
`ANYMPS_GPU=cpu` the CPU plays the GPU, and plain torch computes there, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = 200  # of one operator in a row; fewer than a GPU's queue holds
ROUNDS = 15


def operators(device: str) -> dict[str, Callable[[], Any]]:
    """Calls by name, on tensors of this device."""
    import torch
    from torch.nn import functional

    x, wide = torch.ones(2, 8, 4, 4, device=device), torch.ones(4, 8, device=device)
    filters, matrix = torch.ones(8, 8, 1, 1, device=device), torch.ones(8, 8, device=device)
    weight, bias = torch.ones(8, device=device), torch.ones(8, device=device)
    mean, variance = torch.zeros(8, device=device), torch.ones(8, device=device)
    labels = torch.zeros(4, dtype=torch.long, device=device)
    lists = [[torch.ones(8, device=device) for _ in range(50)] for _ in range(3)]
    grad = torch.ones_like(x)
    statistics = mean[:4].view(2, 2), variance[:4].view(2, 2)
    return {
        "empty": lambda: torch.empty(8, device=device),
        "view": lambda: x.view(8, 32),
        "add": lambda: x + x,
        "mul by a number": lambda: x * 2.0,
        "mul_": lambda: x.mul_(1.0),
        "copy_": lambda: x.copy_(x),
        "relu": lambda: functional.relu(x),
        "silu": lambda: functional.silu(x),
        "silu backward": lambda: torch.ops.aten.silu_backward(grad, x),
        "gelu": lambda: functional.gelu(x),
        "softmax": lambda: wide.softmax(-1),
        "linear": lambda: functional.linear(wide, matrix, bias),
        "bmm": lambda: torch.bmm(x[0], x[0]),
        "conv2d": lambda: functional.conv2d(x, filters, bias),
        "group norm": lambda: functional.group_norm(x, 2, weight, bias),
        "group norm backward": lambda: torch.ops.aten.native_group_norm_backward(
            grad, x, *statistics, weight, 2, 8, 16, 2, [True, True, True]
        ),
        "batch norm": lambda: functional.batch_norm(x, mean, variance, weight, bias, True),
        "layer norm": lambda: functional.layer_norm(wide, (8,), weight, bias),
        "upsample nearest": lambda: functional.interpolate(x, scale_factor=2.0, mode="nearest"),
        "avg pool": lambda: functional.avg_pool2d(x, 2),
        "max pool": lambda: functional.max_pool2d(x, 2),
        "cat": lambda: torch.cat((x, x), 1),
        "sum": x.sum,
        "mean over dims": lambda: x.mean((2, 3)),
        "embedding": lambda: functional.embedding(labels, wide),
        "log softmax": lambda: functional.log_softmax(wide, -1),
        "nll loss": lambda: functional.nll_loss(wide, labels),
        "cross entropy": lambda: functional.cross_entropy(wide, labels),
        "labels + 0": lambda: labels + 0,
        "embedding of labels + 0": lambda: functional.embedding(labels + 0, wide),
        "cross entropy of labels + 0": lambda: functional.cross_entropy(wide, labels + 0),
        "list of 50: mul_": lambda: torch._foreach_mul_(lists[0], 1.0),
        "list of 50: addcdiv_": lambda: torch._foreach_addcdiv_(*lists, 0.0),
        "list of 50: sqrt": lambda: torch._foreach_sqrt(lists[0]),
    }


def work(name: str, substrate: str) -> None:
    """One of the two: answers each line, an operator's name, with microseconds a call."""
    import torch

    played = substrate == "host" or os.environ.get("ANYMPS_GPU") == "cpu"
    device, wait = ("cpu", None) if played else ("cuda", torch.cuda.synchronize)
    if name == "device":
        import anymps

        anymps.enable("M3 Ultra 512GB", substrate=substrate, quiet=True)
        device, wait = "mps", torch.mps.synchronize
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_grad_enabled(False)
    calls = operators(device)
    print(json.dumps(list(calls)), file=answers)
    for line in sys.stdin:
        call = calls[json.loads(line)]
        try:
            call()
            if wait is not None:
                wait()
            gc.disable()
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            told: Any = 1e6 * (time.perf_counter() - began) / CALLS
            gc.enable()
        except RuntimeError as error:
            told = str(error).splitlines()[0]
        print(json.dumps(told), file=answers)


def main() -> None:
    """Prints a line for each operator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--substrate", choices=("host", "cuda"), default="host", help="where the device computes")
    parser.add_argument("--rounds", type=float, default=1.0, help="factor on the number of rounds")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.substrate)
        return
    pipes: dict[str, Any] = {}
    for name in ("plain", "device"):
        command = [sys.executable, __file__, "--work", name, "--substrate", arguments.substrate]
        pipes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    names, _ = (json.loads(process.stdout.readline()) for process in pipes.values())
    print("operator | plain us | device us | more us")
    rows = []
    for operator in names:
        best: dict[str, Any] = {}
        for _ in range(max(2, round(ROUNDS * arguments.rounds))):
            for name, process in pipes.items():
                print(json.dumps(operator), file=process.stdin, flush=True)
                told = json.loads(process.stdout.readline())
                best[name] = told if isinstance(told, str) else min(told, best.get(name, told))
        rows.append({"operator": operator, **best})
        plain, device = best["plain"], best["device"]
        if isinstance(plain, str) or isinstance(device, str):
            print(f"{operator} | {plain} | {device} |", flush=True)
        else:
            print(f"{operator} | {plain:.2f} | {device:.2f} | {device - plain:+.2f}", flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    for process in pipes.values():
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
