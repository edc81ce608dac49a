"""A GPT of ten layers in float16 autocast that adds up gradients, whose memory was measured in public on an M2.

Arguments: batch size, parts to a step, microbatches before and while memory is looked at, then `checkpoint` to
recompute blocks. It prints the most memory in use after a backward, and the most that the driver had given, in bytes.
The model is that of genomics-lm (docs/evidence.md): width 384, 8 heads, 512 tokens of 68 kinds, dropout, attention
masked by segment, a tied head, smoothed labels.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

BATCH, PARTS, BEFORE, LOOKED_AT = (int(word) for word in sys.argv[1:5])
CHECKPOINT = "checkpoint" in sys.argv
KINDS, LENGTH, WIDTH, HEADS, LAYERS, SEPARATOR, DROPOUT = 68, 512, 384, 8, 10, 3, 0.1


class Attention(nn.Module):
    """Attention within the segments of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.register_buffer("triangle", torch.ones(1, 1, LENGTH, LENGTH).tril())

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """`mask` is of shape (batch, 1, length, length) and bool."""
        q, k, v = (
            layer(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        seen = (mask > 0).expand(-1, HEADS, -1, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=DROPOUT if self.training else 0.0)
        return self.out(y.transpose(1, 2).contiguous().view_as(x))


class Block(nn.Module):
    """Attention and a feed-forward network, each with its residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.attention, self.between = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROPOUT)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Shapes stay."""
        x = x + self.attention(self.before(x), mask)
        return x + self.feed(self.between(x))


class GPT(nn.Module):
    """The model; its forward gives the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(KINDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, KINDS, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the next token."""
        x = self.drop(self.tokens(ids) + self.positions(torch.arange(LENGTH, device=ids.device)[None]))
        segment = (ids == SEPARATOR).cumsum(dim=1)
        same = (segment.unsqueeze(-1) == segment.unsqueeze(-2)).unsqueeze(1)
        mask = (torch.ones(LENGTH, LENGTH, device=ids.device).tril()[None, None] > 0) & same
        for block in self.blocks:
            # As it was published, each lambda runs the block that the name means then: in a backward, the last one.
            x = checkpoint(lambda x: block(x, mask), x, use_reentrant=False) if CHECKPOINT else block(x, mask)  # noqa: B023
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, KINDS), targets.view(-1), ignore_index=0, label_smoothing=0.05)


def main() -> None:
    """Train, and look at the memory after each backward."""
    torch.manual_seed(0)
    model = GPT().to("mps").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    in_use = driver = 0
    for count in (BEFORE, LOOKED_AT):
        optimizer.zero_grad(set_to_none=True)
        in_use = driver = 0
        for part in range(1, count + 1):
            ids, targets = (torch.randint(KINDS, (BATCH, LENGTH)).to("mps") for _ in range(2))
            with torch.autocast("mps", dtype=torch.float16):
                loss = model(ids, targets)
            loss.backward()
            in_use = max(in_use, torch.mps.current_allocated_memory())
            driver = max(driver, torch.mps.driver_allocated_memory())
            if part % PARTS == 0 or part == count:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    print(in_use, driver)


if __name__ == "__main__":
    main()
