"""Steps of public benchmarks that were predicted before any fit saw them: a diffusion U-Net, a GPT, a small perceptron.

Rebuilt from their descriptions: `src/ddpm_pytorch.py` of ai-Priest/DDPM-Apple-MLX-vs-PyTorch-MPS at 58d024a, `train.py`
of karpathy/nanoGPT of January 2023, `mnist/benchmark_torch.py` of richiksc/mlx-benchmarks at 107fd89, and the script
of pull request 129350 of pytorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class TimedBlock(nn.Module):
    """Two convolutions with group norms before them, and the time's channels added between."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.first_norm, self.first = nn.GroupNorm(8, given), nn.Conv2d(given, made, 3, padding=1)
        self.time = nn.Linear(512, made)
        self.second_norm, self.second = nn.GroupNorm(8, made), nn.Conv2d(made, made, 3, padding=1)
        self.shortcut = nn.Conv2d(given, made, 1) if given != made else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        made = self.first(functional.silu(self.first_norm(x)))
        made = made + self.time(functional.silu(time)).reshape(len(time), -1, 1, 1)
        return self.shortcut(x) + self.second(functional.silu(self.second_norm(made)))


class PixelAttention(nn.Module):
    """Attention of eight heads among the pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), nn.MultiheadAttention(width, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(x).reshape(*x.shape[:2], -1).permute(0, 2, 1)
        made, _ = self.attention(rows, rows, rows)
        return x + made.permute(0, 2, 1).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """Three levels, 64 to 256 wide, of two blocks each; two in the middle around attention, five on the way up."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.ModuleList([nn.Linear(256, 512), nn.Linear(512, 512)])
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.levels = nn.ModuleList(
            nn.ModuleList([TimedBlock(a, b), TimedBlock(b, b)]) for a, b in ((64, 64), (64, 128), (128, 256))
        )
        self.down = nn.ModuleList(nn.Conv2d(a, a, 3, stride=2, padding=1) for a in (64, 128))
        self.middle = nn.ModuleList([TimedBlock(256, 256), TimedBlock(256, 256)])
        self.attention = PixelAttention(256)
        self.rise = nn.ModuleList(
            nn.ModuleList([TimedBlock(a, b), TimedBlock(b, b)]) for a, b in ((512, 128), (256, 64))
        )
        self.up = nn.ModuleList(nn.Conv2d(a, a, 3, padding=1) for a in (128, 64))
        self.last = TimedBlock(128, 64)
        self.norm, self.head = nn.GroupNorm(8, 64), nn.Conv2d(64, 3, 1)

    def forward(self, x: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-math.log(10000) / 127 * torch.arange(128, dtype=torch.float32, device=when.device))
        turns = when.float().unsqueeze(1) * rates.unsqueeze(0)
        time = torch.cat([torch.sin(turns), torch.cos(turns)], dim=1)
        time = self.time[1](functional.silu(self.time[0](time)))
        x = self.stem(x)
        skips = []
        for place, (first, second) in enumerate(self.levels):
            x = second(first(x, time), time)
            skips.append(x)
            if place < 2:
                x = self.down[place](x)
        x = self.middle[1](self.attention(self.middle[0](x, time)), time)
        for (first, second), up in zip(self.rise, self.up, strict=True):
            x = second(first(torch.cat([x, skips.pop()], dim=1), time), time)
            x = up(functional.interpolate(x, scale_factor=2, mode="nearest"))
        x = self.last(torch.cat([x, skips.pop()], dim=1), time)
        return self.head(functional.silu(self.norm(x)))


def diffusion() -> Callable[[], None]:
    """A training step with Adam on 128 pictures of CIFAR-10, which the loader's batch is copied from.

    The benchmark reads the loss of each step, which waits.
    """
    model = DiffusionUNet().to("mps").train()
    schedule = [torch.rand(1000, device="mps") for _ in range(2)]
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    pictures = torch.randn(128, 3, 32, 32)

    def step() -> None:
        clean = pictures.to("mps")
        when = torch.empty(128, dtype=torch.int64, device="mps").random_(0, 1000)
        optimizer.zero_grad()
        noise = torch.empty_like(clean).normal_()
        kept, added = (one[when].reshape(-1, 1, 1, 1) for one in schedule)
        functional.mse_loss(noise, model(kept * clean + added * noise, when)).backward()
        optimizer.step()

    return step


class GptBlock(nn.Module):
    """A layer of nanoGPT without biases: attention by hand, GELU by its formula."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.register_buffer("seen", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = functional.softmax(scores.masked_fill(self.seen == 0, float("-inf")), dim=-1)
        x = x + self.out((scores @ v).transpose(1, 2).contiguous().view(batch, length, width))
        made = self.wide(self.norms[1](x))
        made = 0.5 * made * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (made + 0.044715 * torch.pow(made, 3.0))))
        return x + self.narrow(made)


class Gpt(nn.Module):
    """nanoGPT with four layers; the embedding is the head."""

    def __init__(self, words: int, width: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(GptBlock(width, 4, length) for _ in range(4)))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, words, bias=False)
        self.words.weight = self.head.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        return self.head(self.norm(self.layers(self.words(tokens) + self.places(places))))


def gpt() -> Callable[[], None]:
    """An iteration of nanoGPT on 12 rows of 64 letters: its batch is copied, then AdamW; the loss is read."""
    words = 65
    model = Gpt(words, 128, 64).to("mps").train()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), foreach=False)
    text = torch.randint(0, words, (100_000,))

    def step() -> None:
        starts = torch.randint(len(text) - 64, (12,))
        given, wanted = (torch.stack([text[i + at : i + at + 64] for i in starts]).to("mps") for at in (0, 1))
        logits = model(given)
        functional.cross_entropy(logits.view(-1, words), wanted.view(-1), ignore_index=-1).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def perceptron(batch: int) -> Callable[[], None]:
    """A training step with SGD of two layers 32 wide on MNIST, whose rows are taken and copied in each step."""
    model = nn.ModuleList(nn.Linear(a, b) for a, b in ((784, 32), (32, 32), (32, 10))).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    images, labels = torch.rand(60_000, 784), torch.randint(0, 10, (60_000,))
    order = torch.randperm(60_000)

    def step() -> None:
        rows = order[:batch]
        x, y = images[rows].to("mps"), labels[rows].to("mps")
        optimizer.zero_grad()
        x = model[0](x)
        for layer in list(model)[1:]:
            x = layer(x.relu())
        functional.cross_entropy(x, y).backward()
        optimizer.step()

    return step


def update(numbers: int, momentum: float) -> Callable[[], None]:
    """SGD's update of 500 tensors with so many numbers each, one after the other."""
    parameters = [torch.zeros(numbers, device="mps") for _ in range(500)]
    for parameter in parameters:
        parameter.grad = torch.ones(numbers, device="mps")
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=momentum, foreach=False)

    def step() -> None:
        optimizer.step()

    return step
