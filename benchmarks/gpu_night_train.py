"""A language model of 57 million weights, trained on the text that Python ships: its reference and its library.

    anymps run --substrate cuda --mac "M2 16GB" benchmarks/gpu_night_train.py [--steps N]

Bytes are its tokens. Ordinary torch for a Mac: nothing here knows of anymps.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, POSITIONS, BATCH = 768, 8, 12, 512, 8
VALIDATED = 20  # batches


class Block(nn.Module):
    """A pre-norm transformer block; [B, T, D] to [B, T, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, _ = x.shape
        parts = self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(batch, positions, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, positions, WIDTH))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """[B, T] bytes to [B, T, 256] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        out: Tensor = self.head(self.norm(self.blocks(x)))
        return out


def text() -> tuple[Tensor, Tensor]:
    """The bytes to train on, and the last twentieth to validate on."""
    library = sorted(Path(os.__file__).parent.glob("*.py"))
    parts = [topics[name].encode() for name in sorted(topics)] + [path.read_bytes() for path in library]
    data = torch.frombuffer(bytearray(b"\n\n".join(parts)), dtype=torch.uint8)
    held = len(data) // 20
    return data[:-held], data[-held:]


def batch_of(data: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A batch of random places, on mps."""
    places = torch.randint(0, len(data) - POSITIONS - 1, (BATCH, 1), generator=generator)
    rows = data[places + torch.arange(POSITIONS + 1)].long()
    return rows[:, :-1].to("mps"), rows[:, 1:].to("mps")


def main() -> None:
    """Trains, and prints the losses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5000)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    train, held = text()
    model = Model().to("mps")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda it: min(1.0, (it + 1) / 100) * (0.55 + 0.45 * math.cos(math.pi * min(1.0, it / 5000)))
    )
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(f"{weights:,} weights, {len(train):,} bytes to train on, {len(held):,} held out", flush=True)
    began = time.perf_counter()
    every = 10 if steps <= 100 else 250
    for step in range(steps):
        tokens, targets = batch_of(train, generator)
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        if step % every == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.6f} after {time.perf_counter() - began:.1f} s", flush=True)
    model.eval()
    with torch.no_grad():
        places = torch.Generator().manual_seed(1)
        total = torch.zeros((), device="mps")
        for _ in range(VALIDATED):
            tokens, targets = batch_of(held, places)
            total += functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    print(f"held out loss {total.item() / VALIDATED:.6f}", flush=True)


if __name__ == "__main__":
    main()
