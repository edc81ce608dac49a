"""Train a small GPT, character by character, on the language reference that ships inside Python (pydoc_data.topics).

    anymps run --mac "M3 Pro 18GB" examples/char_gpt.py

Good practice on MPS shown here: the text lives on the device and batches are cut out of it there, the attention mask
moves with the model, shapes never change, the loss is read every READ_EVERY steps only, evaluation ends in one read.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn import functional as F

SEED = 0
HELD_OUT = 10  # every tenth topic is kept from training
CONTEXT = 64  # characters the model sees at once
LAYERS = 3  # blocks
HEADS = 4  # attention heads a block
WIDTH = 96  # numbers a position carries through the blocks
BATCH = 24  # windows a step
STEPS = 600  # optimizer steps
READ_EVERY = 50  # steps between two reads of the loss; each read makes the host wait for the device
CHECKS = 20  # batches of held-out text for the final figure
LEARNING_RATE = 2e-3  # AdamW's step size


def devices() -> list[str]:
    """Name the devices of this machine, best first."""
    there = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available(), "cpu": True}
    return [name for name, available in there.items() if available]


class Block(nn.Module):
    """One pre-norm block: causal self-attention, then an MLP, each added to its input [batch, CONTEXT, WIDTH]."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        # 0 where a position may look, -inf on what comes after it. A buffer: .to(device) moves it with the weights.
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -math.inf).triu(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.qkv(self.norm_1(x)).view(-1, CONTEXT, 3, HEADS, WIDTH // HEADS)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # each [batch, HEADS, CONTEXT, WIDTH / HEADS]
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        attention = (scores + self.mask).softmax(dim=-1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(x.shape))
        change: torch.Tensor = self.mlp(self.norm_2(x))
        return x + change


class GPT(nn.Module):
    """Characters [batch, CONTEXT] int64 -> logits of the next character [batch, CONTEXT, characters]."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.position = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        x = self.embedding(characters) + self.position
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def loss_of(model: GPT, windows: torch.Tensor) -> torch.Tensor:
    """Mean nats a character for guessing each next character of windows [batch, CONTEXT + 1]; a 0-dim device tensor."""
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def main(argv: Sequence[str] | None = None) -> int:
    """Train, then print the held-out loss beside the entropy of the characters' frequencies."""
    parser = argparse.ArgumentParser(description="Train a small character-level GPT.")
    parser.add_argument("--device", choices=devices(), default=devices()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    torch.manual_seed(SEED)

    # Host only: texts to numbers, and where every batch begins. Drawn here, the batches are the same for every device.
    names = sorted(topics)
    training_text = "\n".join(topics[name] for index, name in enumerate(names) if index % HELD_OUT)
    held_out_text = "\n".join(topics[name] for name in names[::HELD_OUT])
    number = {character: index for index, character in enumerate(sorted(set(training_text + held_out_text)))}
    starts = torch.randint(len(training_text) - CONTEXT, (options.steps, BATCH, 1))
    check_starts = torch.randint(len(held_out_text) - CONTEXT, (CHECKS, BATCH, 1))
    entropy = -sum(n / len(training_text) * math.log(n / len(training_text)) for n in Counter(training_text).values())

    # To the device: everything, once. A batch is then an index into the text, made where the text is.
    training = torch.tensor([number[character] for character in training_text]).to(device)
    held_out = torch.tensor([number[character] for character in held_out_text]).to(device)
    starts, check_starts = starts.to(device), check_starts.to(device)
    span = torch.arange(CONTEXT + 1, device=device)
    model = GPT(len(number)).to(device)  # weights are drawn on the host: the same start on every device
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    print(f"{device}: {len(training)} training characters, {len(held_out)} held out, {len(number)} different ones")

    running = torch.zeros((), device=device)  # sum of the losses since the last read
    for step in range(1, options.steps + 1):
        loss = loss_of(model, training[starts[step - 1] + span])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if step % READ_EVERY == 0:
            print(f"step {step:4d}  training loss {running.item() / READ_EVERY:.3f}")
            running.zero_()

    total = torch.zeros((), device=device)
    with torch.no_grad():
        for check in check_starts:
            total += loss_of(model, held_out[check + span])
    print(f"held-out loss {total.item() / CHECKS:.3f} nats a character, frequencies alone {entropy:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
