"""Models of the kinds that people train, in plain torch and of any size: a step of each, for tests and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


class Block(nn.Module):
    """A pre-norm transformer block; [B, T, D] to [B, T, D]."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, positions, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // self.heads)
        if self.causal:
            later = torch.ones(positions, positions, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        weights = functional.dropout(scores.softmax(dim=-1), self.dropout, self.training)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, positions, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """[B, T] tokens to [B, T, V] logits."""

    def __init__(self, vocabulary: int, width: int, positions: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, causal=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


class ViT(nn.Module):
    """[B, 3, S, S] images to [B, 10] logits: patches of 1/8 of a side, a class token, the mean of nothing else."""

    def __init__(self, side: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        patch = side // 8
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.places
        out: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return out


class ConvNet(nn.Module):
    """[B, 3, S, S] images to [B, 10] logits: residual stages with batch norm, each of half the side."""

    def __init__(self, width: int, stages: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        for stage in range(stages):
            layers += [Residual(width << stage, width << stage + 1)]
        self.stages = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(width << stages, 10))

    def forward(self, images: Tensor) -> Tensor:
        x = functional.max_pool2d(self.stages(self.stem(images)), 2)
        out: Tensor = self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return out


class Residual(nn.Module):
    """[B, C, S, S] to [B, D, S/2, S/2]."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(y + self.short(x))


class Reader(nn.Module):
    """An LSTM language model; [B, T] tokens to [B, T, V] logits."""

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(self.tokens(tokens))[0])
        return out


class UNet(nn.Module):
    """A diffusion U-Net: [B, 3, S, S] noisy images and [B] times to the noise. Attention at the lowest level."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Timed(a, b, 4 * width) for a, b in zip([width, *widths], widths, strict=False))
        self.middle = Block(widths[-1], 4, 0.0, causal=False)
        self.up = nn.ModuleList(
            Timed(a + b, b, 4 * width) for a, b in zip([widths[-1], *widths[:0:-1]], widths[::-1], strict=True)
        )
        self.out = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, images: Tensor, times: Tensor) -> Tensor:
        half = self.width // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half, device=times.device) / half)
        angles = times[:, None].float() * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        x, kept = self.stem(images), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = functional.avg_pool2d(x, 2)
        shape = x.shape
        x = self.middle(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(shape)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], dim=1), time)
        out: Tensor = self.out(x)
        return out


class Timed(nn.Module):
    """A residual block that is told the time; [B, C, S, S] to [B, D, S, S]."""

    def __init__(self, before: int, after: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.conv1, self.conv2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(time, after)
        self.short = nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x))) + self.time(functional.silu(time))[:, :, None, None]
        return self.short(x) + self.conv2(functional.silu(self.norm2(y)))


def tokens_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """The next token's."""
    tokens, targets = batch
    return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def images_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """The class's."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


def noise_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """The noise's, drawn on the device."""
    images, times = batch
    noise = torch.randn_like(images)
    share = (1 + times[:, None, None, None] / 1000).reciprocal()
    return functional.mse_loss(model(images * share + noise * (1 - share), times), noise)


def gpt(device: str, width: int, positions: int, batch: int, layers: int, dropout: float = 0.0) -> Any:
    """A GPT with a batch of random tokens: model, loss, batch."""
    vocabulary, heads = 256 if width < 1024 else 8192, max(4, width // 128)
    model = GPT(vocabulary, width, positions, layers, heads, dropout).to(device)
    return model, tokens_loss, _tokens(device, vocabulary, batch, positions)


def lstm(device: str, width: int, positions: int, batch: int, layers: int, dropout: float = 0.0) -> Any:
    """An LSTM with a batch of random tokens."""
    return Reader(256, width, layers, dropout).to(device), tokens_loss, _tokens(device, 256, batch, positions)


def vit(device: str, width: int, side: int, batch: int, layers: int, dropout: float = 0.0) -> Any:
    """A vision transformer with a batch of random images."""
    return ViT(side, width, layers, max(4, width // 64), dropout).to(device), images_loss, _images(device, batch, side)


def convnet(device: str, width: int, side: int, batch: int, stages: int, dropout: float = 0.0) -> Any:
    """A convolutional network with a batch of random images."""
    return ConvNet(width, stages, dropout).to(device), images_loss, _images(device, batch, side)


def unet(device: str, width: int, side: int, batch: int, levels: int) -> Any:
    """A diffusion U-Net with a batch of random images."""
    images, _ = _images(device, batch, side)
    times = (torch.arange(batch) * 37 % 1000).to(device)
    return UNet(width, levels).to(device), noise_loss, (images, times)


def _tokens(device: str, vocabulary: int, batch: int, positions: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(0, vocabulary, (batch, positions + 1), generator=generator)
    return words[:, :-1].contiguous().to(device), words[:, 1:].contiguous().to(device)


def _images(device: str, batch: int, side: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(batch, 3, side, side, generator=generator)
    return images.to(device), torch.randint(0, 10, (batch,), generator=generator).to(device)


def make_step(make: Callable[..., Any], device: str, *sizes: int, dropout: float | None = None, **how: Any) -> Any:
    """A training step that returns its loss, everything else prepared; `how` is for AdamW."""
    torch.manual_seed(0)
    model, loss_of, batch = make(device, *sizes, **({} if dropout is None else {"dropout": dropout}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **how)

    def step() -> Tensor:
        loss: Tensor = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


SMALL: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "GPT": (gpt, (64, 32, 4, 2)),
    "convolutional network": (convnet, (16, 32, 8, 2)),
    "LSTM": (lstm, (64, 24, 4, 2)),
    "ViT": (vit, (64, 32, 4, 2)),
    "U-Net": (unet, (32, 32, 4, 2)),
}
"""Models that train in a second on any processor."""
