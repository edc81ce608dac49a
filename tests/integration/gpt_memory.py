"""A GPT of the kind that nanochat trains, on random tokens in float32, whose memory is planned and compared in public.

Arguments: depth, batch size, sequence length, then any of `checkpoint` (recompute blocks) and `show` (print the memory
in use after each step). The width is 64 times the depth. What keeps tensors for the backward is all here: rotary
positions, norms of queries and keys, windows of a quarter of the context in three of four layers, value embeddings
with gates in every second one, a scaled residual stream with a share of the first one, the smear of neighbouring
tokens, squared ReLU, an untied head and capped logits. Muon trains the matrices and AdamW the rest.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DEPTH, BATCH, LENGTH = (int(word) for word in sys.argv[1:4])
WIDTH, HEAD, VOCABULARY = 64 * DEPTH, 128, 32768
WINDOW = -(-LENGTH // 4 // 128) * 128
CHECKPOINT, SHOW = "checkpoint" in sys.argv, "show" in sys.argv
device = torch.device("mps")


def norm(x: Tensor) -> Tensor:
    """RMSNorm without weights."""
    return F.rms_norm(x, (x.size(-1),))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, by halves."""
    first, second = x.chunk(2, dim=3)
    return torch.cat([first * cos + second * sin, second * cos - first * sin], 3)


def has_values(layer: int) -> bool:
    """Every second layer mixes in value embeddings, the last one always."""
    return layer % 2 == (DEPTH - 1) % 2


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer without bias."""
    return nn.Linear(inputs, outputs, bias=False)


class Block(nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (linear(WIDTH, WIDTH) for _ in range(4))
        self.gate = linear(12, WIDTH // HEAD) if has_values(layer) else None
        self.up, self.down = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)
        self.long = layer % 4 == 3 or layer == DEPTH - 1 or WINDOW >= LENGTH

    def attend(self, x: Tensor, values: Tensor | None, cos: Tensor, sin: Tensor) -> Tensor:
        """Causal attention, within the window or over everything."""
        q, k, v = (layer(x).view(*x.shape[:2], -1, HEAD) for layer in (self.q, self.k, self.v))
        if self.gate is not None and values is not None:
            v = v + (3 * torch.sigmoid(self.gate(x[..., :12]))).unsqueeze(-1) * values.view_as(v)
        q, k = norm(rotate(q, cos, sin)) * 1.2, norm(rotate(k, cos, sin)) * 1.2
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if self.long:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            row, column = torch.arange(LENGTH, device=x.device)[:, None], torch.arange(LENGTH, device=x.device)[None]
            mask = (column <= row) & (row - column <= WINDOW)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).contiguous().view_as(x))

    def forward(self, x: Tensor, values: Tensor | None, cos: Tensor, sin: Tensor) -> Tensor:
        """Both with their residual."""
        x = x + self.attend(norm(x), values, cos, sin)
        return x + self.down(F.relu(self.up(norm(x))).square())


class GPT(nn.Module):
    """The model; its forward gives the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(layer) for layer in range(DEPTH))
        self.head = linear(WIDTH, VOCABULARY)
        self.values = nn.ModuleDict({str(n): nn.Embedding(VOCABULARY, WIDTH) for n in range(DEPTH) if has_values(n)})
        self.scale, self.share = nn.Parameter(torch.ones(DEPTH)), nn.Parameter(torch.zeros(DEPTH))
        self.smear, self.smeared = linear(24, 1), nn.Parameter(torch.zeros(1))
        self.without = nn.Parameter(torch.ones(1))
        angles = torch.outer(torch.arange(10 * LENGTH).float(), 100000 ** -(torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", angles.cos()[None, :, None])
        self.register_buffer("sin", angles.sin()[None, :, None])

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the next token."""
        cos, sin = self.cos[:, :LENGTH], self.sin[:, :LENGTH]
        x = norm(self.embedding(ids))
        gate = self.smeared * torch.sigmoid(self.smear(x[:, 1:, :24]))
        x = torch.cat([x[:, :1], x[:, 1:] + gate * x[:, :-1]], dim=1)
        first = middle = x
        for layer, block in enumerate(self.blocks):
            x = self.scale[layer] * x + self.share[layer] * first
            values = self.values[str(layer)](ids) if str(layer) in self.values else None
            inputs = (x, values, cos, sin)
            x = checkpoint(block, *inputs, use_reentrant=False) if CHECKPOINT else block(*inputs)
            if layer == DEPTH // 2:
                middle = x
        logits = self.head(norm(x - self.without * middle))
        logits = logits.float()
        logits = 15 * torch.tanh(logits / 15)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1)


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = GPT().to(device)
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.dim() == 2]
    known = set(map(id, matrices))
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    optimizers = [torch.optim.AdamW(rest, lr=1e-4, fused=True), torch.optim.Muon(matrices, lr=1e-4)]
    for _ in range(3):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1)).to(device)
        loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        with_gradients = torch.mps.current_allocated_memory()
        model.zero_grad(set_to_none=True)
        if SHOW:
            print(with_gradients, torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory())


if __name__ == "__main__":
    main()
