"""A small GPT trained on random tokens, in float32, whose memory is planned; arguments: batch size and sequence length.

Rotary positions, RMSNorm without weights, squared ReLU, untied head, logits capped at 15, AdamW for all parameters.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, LENGTH = int(sys.argv[1]), int(sys.argv[2])
DEPTH, WIDTH, HEAD, VOCABULARY = 12, 768, 128, 32768
device = torch.device("mps")


def norm(x: Tensor) -> Tensor:
    """RMSNorm without weights."""
    return F.rms_norm(x, (x.size(-1),))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, by halves."""
    first, second = x.chunk(2, dim=3)
    return torch.cat([first * cos + second * sin, second * cos - first * sin], 3)


class Block(nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Both with their residual."""
        y = norm(x)
        q, k, v = (layer(y).view(*x.shape[:2], -1, HEAD) for layer in (self.q, self.k, self.v))
        q, k = norm(rotate(q, cos, sin)), norm(rotate(k, cos, sin))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous().view_as(x)
        x = x + self.out(y)
        return x + self.down(F.relu(self.up(norm(x))).square())


class GPT(nn.Module):
    """The model; its forward gives the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(LENGTH).float(), 10000 ** -(torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", angles.cos()[None, :, None])
        self.register_buffer("sin", angles.sin()[None, :, None])

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the next token."""
        x = norm(self.embedding(ids))
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = 15 * torch.tanh(self.head(norm(x)) / 15)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(3):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1)).to(device)
        loss = model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


if __name__ == "__main__":
    main()
