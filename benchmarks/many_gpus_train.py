"""The language model of gpu_night_train.py, trained by several ranks that average their gradients.

    anymps run --substrate cuda -m torch.distributed.run --standalone --nproc-per-node 2 benchmarks/many_gpus_train.py
    torchrun --standalone --nproc-per-node 2 benchmarks/many_gpus_train.py --device cuda [--backend nccl]

Ordinary torch for Macs: gradients go over gloo, by the CPU. Each rank takes its share of one global batch, so the
losses are those of a single rank with all of it. `--fault` makes the last rank fail, to see what becomes of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from gpu_night_train import POSITIONS, Model, text
from torch import Tensor, nn
from torch.nn import functional

BATCH = 8
FAULT_STEP = 3
WARM_UP = 5  # steps that are not timed
HOG = [11 << 29] * 2  # bytes: an M2 with 16 GB has room for two such tensors, not for four


def batches(steps: int) -> list[Tensor]:
    """The global batches, [B, T + 1] bytes each; the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    data, _ = text()
    places = [torch.randint(0, len(data) - POSITIONS - 1, (BATCH, 1), generator=generator) for _ in range(steps)]
    return [data[place + torch.arange(POSITIONS + 1)].long() for place in places]


def in_one_buffer(parameters: list[nn.Parameter]) -> Tensor:
    """Gives all parameters gradients that are views of one tensor, which it returns."""
    buffer = torch.zeros(sum(it.numel() for it in parameters), device=parameters[0].device)
    for parameter, part in zip(parameters, buffer.split([it.numel() for it in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)
    return buffer


def hog() -> list[Tensor]:
    """Most of a Mac's memory."""
    return [torch.empty(size, dtype=torch.uint8, device="mps") for size in HOG]


def fail(how: str) -> None:
    """What a rank does that fails."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "hang":
        time.sleep(3600)
    elif how == "fill":
        hog()


def main() -> None:
    """Trains; rank 0 prints what was seen as a line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="mps")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault", choices=["kill", "hang", "fill"])
    parser.add_argument("--patience", type=float, default=300, help="seconds that a rank waits for the others")
    options = parser.parse_args()
    if options.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(options.backend, timeout=timedelta(seconds=options.patience))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model().eval().to(options.device)  # without dropout: each rank would draw other neurons
    parameters = list(model.parameters())
    gradients = in_one_buffer(parameters)
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1, fused=True)
    mine = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    losses = torch.zeros(options.steps, device=options.device)
    kept = hog() if options.fault == "fill" else []
    seconds = []
    for step, batch in enumerate(batches(options.steps)):
        began = time.perf_counter()
        if step == FAULT_STEP and rank == ranks - 1 and options.fault:
            fail(options.fault)
        tokens = batch[mine].to(options.device)
        loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if ranks > 1 and options.backend == "nccl":
            dist.all_reduce(gradients)
            gradients /= ranks
        elif ranks > 1:
            shared = gradients.cpu()
            dist.all_reduce(shared)
            gradients.copy_(shared)
            gradients /= ranks
        optimizer.step()
        gradients.zero_()
        losses[step] = loss.detach()
        if rank == 0:
            shown = loss.item()  # as a progress bar does
            if step % 50 == 0:
                print(f"step {step} loss {shown:.4f}", flush=True)
        if ranks == 1:  # else the gradients' way to the CPU has waited
            (torch.cuda if options.device == "cuda" else torch.mps).synchronize()
        seconds.append(time.perf_counter() - began)
    means = losses.to("cuda" if options.backend == "nccl" else "cpu")
    dist.all_reduce(means)
    memory = torch.mps.driver_allocated_memory() if options.device == "mps" else torch.cuda.max_memory_allocated()
    everyone: list[int] = [0] * ranks
    dist.all_gather_object(everyone, memory)
    if rank == 0:
        told = {
            "weights": sum(it.numel() for it in parameters),
            "losses": (means / ranks).tolist(),
            "seconds": sorted(seconds[WARM_UP:])[len(seconds[WARM_UP:]) // 2],
            "memory": everyone,
        }
        print(json.dumps(told), flush=True)
    del kept
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
