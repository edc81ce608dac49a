"""Trains a small model twice, as it is and compiled by torch's default backend; prints both rows of losses."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 4


class Block(nn.Module):
    """Attention and two linear layers, each behind a norm."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) to the same."""
        batch, tokens, width = x.shape
        parts = self.qkv(self.first_norm(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.wide(self.second_norm(x))


class Gpt(nn.Module):
    """Embeddings, two blocks, and the scores of 50 tokens."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(50, width), nn.Embedding(16, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.scores = nn.Linear(width, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens) to (batch, tokens, 50)."""
        places = torch.arange(x.shape[1], device=x.device)
        scores: torch.Tensor = self.scores(self.blocks(self.token(x) + self.place(places)))
        return scores


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, torch.Tensor]]]] = {
    "gpt": (Gpt, lambda: (torch.randint(0, 50, (4, 16)), torch.randint(0, 50, (4, 16)))),
    "convolutions": (_convolutions, lambda: (torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,)))),
}


def losses(model: nn.Module, module: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """The loss of each step of a training of `model`, which `module` runs."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main(name: str) -> None:
    """Prints the losses of the model as it is, then compiled."""
    make, data = MODELS[name]
    torch.manual_seed(0)
    plain = make().to("mps")
    x, y = (part.to("mps") for part in data())
    compiled = copy.deepcopy(plain)
    print(*losses(plain, plain, x, y))
    print(*losses(compiled, torch.compile(compiled), x, y))


if __name__ == "__main__":
    main(sys.argv[1])
