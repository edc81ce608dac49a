"""Steps of public benchmarks that write their networks out: nine small ones, KWT, and a transformer and a U-Net.

Rebuilt from their descriptions: `test_memory_leak_fixes.py` of dharvpat/pytorch-PRs at c931920, `speechcommands` of
SarthakYadav/mlx-examples at 03a9b88, `python_bench` of unixpickle/mac-nn-bench at be31c8c.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


def _conv(given: int, made: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(given, made, 3, stride=stride, padding=1)


class Recurrent(nn.Module):
    """Two recurrent layers 64 wide over sequences of 32 numbers; the last state gives ten classes."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(32, 64, num_layers=2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, state = self.layers(x)
        last = state[0] if isinstance(state, tuple) else state
        return self.head(last[-1])


class Encoder(nn.Module):
    """Two layers of torch's transformer, 64 wide with four heads; the mean over the sequence gives ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(64, 64)
        layer = nn.TransformerEncoderLayer(64, 4, dropout=0.2, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(x)).mean(dim=1))


def _pooled(width: int, dropout: float) -> nn.Sequential:
    """The mean of every channel, then ten classes."""
    return nn.Sequential(MeanOfPixels(), nn.Dropout(dropout), nn.Linear(width, 10))


class MeanOfPixels(nn.Module):
    """The mean of every channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=[2, 3])


class VariationalEncoder(nn.Module):
    """Three convolutions to a mean and a variance, from which a sample gives ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            _conv(3, 16), nn.ReLU(), _conv(16, 32), nn.ReLU(), _conv(32, 64), nn.ReLU(), MeanOfPixels()
        )
        self.mean, self.log_variance = nn.Linear(64, 32), nn.Linear(64, 32)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.convolutions(x)
        mean, deviation = self.mean(seen), torch.exp(0.5 * self.log_variance(seen))
        return self.head(mean + torch.empty_like(deviation).normal_() * deviation)


class Residual(nn.Module):
    """Two convolutions with norms beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(width, width), nn.BatchNorm2d(width), nn.ReLU(), _conv(width, width), nn.BatchNorm2d(width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.body(x)
        made += x
        return functional.relu(made)


class SmallUNet(nn.Module):
    """Three levels of two convolutions each, 16 to 64 wide, with skips, and ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(self._level(a, b) for a, b in ((3, 16), (16, 32), (32, 64)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in ((64, 32), (32, 16)))
        self.after = nn.ModuleList(self._level(a, b) for a, b in ((64, 32), (32, 16)))
        self.head = _pooled(16, 0.2)

    @staticmethod
    def _level(given: int, made: int) -> nn.Sequential:
        return nn.Sequential(_conv(given, made), nn.ReLU(), _conv(made, made), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down[0](x)
        second = self.down[1](functional.max_pool2d(first, 2))
        x = self.down[2](functional.max_pool2d(second, 2))
        for skip, up, after in zip((second, first), self.up, self.after, strict=True):
            x = after(torch.cat([up(x), skip], dim=1))
        return self.head(x)


def _mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(1000, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(500, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def _three_convolutions() -> nn.Sequential:
    return nn.Sequential(
        _conv(3, 32), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        _conv(32, 64), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        _conv(64, 128), nn.BatchNorm2d(128), nn.ReLU(), _pooled(128, 0.3),
    )  # fmt: skip


def _residual_network() -> nn.Sequential:
    return nn.Sequential(
        _conv(3, 32), nn.BatchNorm2d(32), nn.ReLU(), Residual(32),
        _conv(32, 64, stride=2), nn.BatchNorm2d(64), nn.ReLU(), Residual(64), _pooled(64, 0.2),
    )  # fmt: skip


_IMAGES, _SEQUENCES = (32, 3, 64, 64), (32, 16, 32)
SMALL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (_mlp, (32, 1000)),
    "convolutions": (_three_convolutions, _IMAGES),
    "encoder": (Encoder, (32, 32, 64)),
    "lstm": (lambda: Recurrent(nn.LSTM), _SEQUENCES),
    "rnn": (lambda: Recurrent(nn.RNN), _SEQUENCES),
    "gru": (lambda: Recurrent(nn.GRU), _SEQUENCES),
    "vae": (VariationalEncoder, _IMAGES),
    "residual": (_residual_network, _IMAGES),
    "unet": (SmallUNet, _IMAGES),
}


def small(name: str) -> Callable[[], None]:
    """A training step with Adam of one of the nine, on a batch of 32 that is made on the device in every step."""
    make, shape = SMALL[name]
    model = make().to("mps").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        # As `randn` and `randint` do it on the device.
        batch = torch.empty(shape, device="mps").normal_()
        labels = torch.empty(shape[:1], dtype=torch.int64, device="mps").random_(0, 10)
        optimizer.zero_grad()
        functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()

    return step


class KeywordBlock(nn.Module):
    """Attention by hand and a feed-forward part, each followed by a norm and a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, width**-0.5
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.softmax(q @ k.permute(0, 1, 3, 2) * self.scale, dim=-1) @ v
        x = self.first_norm(self.out(seen.permute(0, 2, 1, 3).reshape(batch, length, -1))) + x
        return self.second_norm(self.inner(x)) + x


class KeywordTransformer(nn.Module):
    """KWT: twelve layers over 98 frames of 40 frequencies and a class token, 35 words."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.frames = nn.Conv2d(1, width, (1, 40), stride=(1, 40))
        self.places = nn.Parameter(torch.randn(99, width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.Sequential(*(KeywordBlock(width, heads) for _ in range(12)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 35))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.frames(x.unsqueeze(1))
        made = made.reshape(len(x), -1, made.shape[1])
        made = torch.cat((self.token.expand(len(x), -1, -1), made), dim=1) + self.places
        return self.head(self.layers(self.dropout(made)).mean(dim=1))


def keywords(width: int, heads: int, train: bool) -> Callable[[], None]:
    """A batch of 256 sounds as the benchmark times it: a training step with SGD, or a forward pass; then accuracy."""
    model = KeywordTransformer(width, heads).to("mps").train(train)
    sounds, labels = torch.randn(256, 98, 40, device="mps"), torch.randint(0, 35, (256,), device="mps")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        with torch.set_grad_enabled(train):
            made = model(sounds)
        if train:
            loss = functional.cross_entropy(made, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.sum(torch.argmax(made, dim=1) == labels) / labels.shape[0]

    return step


class RotaryBlock(nn.Module):
    """A layer 1024 wide: attention of 16 heads by hand with rotary places and a mask, and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(1024, 1024, bias=False) for _ in range(4))
        self.first_norm, self.second_norm = nn.LayerNorm(1024), nn.LayerNorm(1024)
        self.wide, self.narrow = nn.Linear(1024, 2048, bias=False), nn.Linear(2048, 1024, bias=False)

    @staticmethod
    def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        pairs = x.reshape(*x.shape[:3], 32, 2)
        a, b, cos, sin = pairs[..., 0], pairs[..., 1], turns[..., 0], turns[..., 1]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(start_dim=3)

    def forward(self, x: torch.Tensor, turns: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        given = self.first_norm(x)
        q, k, v = self.q(given) / 64**0.25, self.k(given) / 64**0.25, self.v(given)
        q, k, v = (part.reshape(batch, length, 16, 64).transpose(1, 2) for part in (q, k, v))
        scores = torch.einsum("bhtd,bhld->bhtl", self._turned(q, turns), self._turned(k, turns)) + mask
        seen = torch.einsum("bhtl,bhld->bhtd", torch.softmax(scores, dim=-1), v)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, 1024))
        return x + self.narrow(functional.gelu(self.wide(self.second_norm(x))))


def rotary() -> Callable[[], None]:
    """A training step with Adam of 24 such layers over four sequences of 384 out of 16,640 words."""
    layers = nn.ModuleList(RotaryBlock() for _ in range(24)).to("mps")
    embedding, norm = nn.Embedding(16640, 1024).to("mps"), nn.LayerNorm(1024).to("mps")
    head = nn.Linear(1024, 16640, bias=False).to("mps")
    words = torch.randint(0, 16640, (4, 384), device="mps")
    turns, mask = torch.randn(384, 32, 2, device="mps"), torch.randn(384, 384, device="mps")
    parts = nn.ModuleList([embedding, layers, norm, head])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        x = embedding(words)
        for layer in layers:
            x = layer(x, turns, mask)
        functional.cross_entropy(head(norm(x)).view(-1, 16640), words.view(-1)).backward()
        optimizer.step()

    return step


class NormedBlock(nn.Module):
    """A residual block with group norms that may halve or double the size of its images."""

    def __init__(self, given: int, made: int, resample: str = "") -> None:
        super().__init__()
        self.resample = resample
        stride = 2 if resample == "down" else 1
        self.resized = nn.ModuleList(_conv(given, given, stride) for _ in range(2 if resample else 0))
        self.shortcut = _conv(given, made) if given != made else nn.Identity()
        self.first_norm, self.first = nn.GroupNorm(32, given), _conv(given, made)
        self.second_norm, self.second = nn.GroupNorm(32, made), _conv(made, made)

    def _resize(self, x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        return layer(functional.interpolate(x, scale_factor=2, mode="nearest") if self.resample == "up" else x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.first_norm(x)
        if self.resample:
            made, x = self._resize(made, self.resized[0]), self._resize(x, self.resized[1])
        made = self.first(functional.silu(made))
        made = self.second(functional.silu(self.second_norm(made)))
        return self.shortcut(x) + made


class NormedUNet(nn.Module):
    """A U-Net of such blocks, 64, 64 and 128 wide, whose outer convolutions are 32 wide."""

    def __init__(self) -> None:
        super().__init__()
        widths, now, skips = (32, 64, 64, 128), 32, [32]
        self.first = _conv(3, 32)
        down: list[nn.Module] = []
        for place, width in enumerate(widths[1:], 1):
            for _ in range(2):
                down.append(NormedBlock(now, width))
                now = width
                skips.append(now)
            if place < 3:
                down.append(NormedBlock(now, now, "down"))
                skips.append(now)
        self.down = nn.ModuleList(down)
        self.middle = nn.Sequential(NormedBlock(now, now), NormedBlock(now, now))
        up: list[nn.Module] = []
        for place, width in zip((3, 2, 1), widths[2::-1], strict=True):
            for number in range(3):
                block = NormedBlock(now + skips.pop(), width)
                now = width
                last = place > 1 and number == 2
                up.append(nn.Sequential(block, NormedBlock(now, now, "up")) if last else block)
        self.up = nn.ModuleList(up)
        self.norm, self.last = nn.GroupNorm(32, 32), _conv(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        skips = [x]
        for block in self.down:
            x = block(x)
            skips.append(x)
        x = self.middle(x)
        for block in self.up:
            x = block(torch.cat([x, skips.pop()], dim=1))
        return self.last(functional.silu(self.norm(x)))


def normed_unet() -> Callable[[], None]:
    """A training step with Adam on 32 images of 64 x 64."""
    model = NormedUNet().to("mps")
    images = torch.zeros(32, 3, 64, 64, device="mps")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        (model(images) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
