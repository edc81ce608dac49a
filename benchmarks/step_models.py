"""Steps of public benchmarks beyond torchvision and transformers: a GCN and CIFAR ResNets, rebuilt; scVI."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn


class GraphConvolutions(nn.Module):
    """Three graph convolutions with a dense adjacency: `main_torch.py` of TristanBilot/mlx-GCN at dd639de."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(a, b)) for a, b in pairs)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for _, b in pairs)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if place:
                x = self.dropout(torch.relu(x))
            x = x @ weight
            x += bias
            x = torch.mm(adjacency, x)
        return x


def cora() -> Callable[[], None]:
    """An epoch on Cora, 2708 papers with 1433 words each: a training step, then loss and accuracy of 300 papers.

    The benchmark takes rows by masks, which the device turns into places, and waits; here the places are given.
    """
    model = GraphConvolutions((1433, 16, 16, 7)).to("mps").train()
    x, adjacency = torch.randn(2708, 1433, device="mps"), torch.randn(2708, 2708, device="mps")
    labels = torch.randint(0, 7, (2708,), device="mps")
    train, validate = torch.arange(140, device="mps"), torch.arange(200, 500, device="mps")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3, foreach=False)
    loss_of = nn.CrossEntropyLoss()

    def epoch() -> None:
        optimizer.zero_grad()
        made = model(x, adjacency)
        loss_of(made[train], labels[train]).backward()
        optimizer.step()
        with torch.no_grad():
            loss_of(made[validate], labels[validate])
            found, wanted = made[validate], labels[validate]
            torch.mean((torch.argmax(found, dim=1) == wanted).float())

    return epoch


def scvi(cells: int, genes: int) -> Callable[[], None]:
    """Forward and backward of a resident batch through scVI with its defaults, without the optimizer."""
    from scvi.module import VAE

    torch.distributions.Distribution.set_default_validate_args(False)  # shapes have no values to look at
    model = VAE(n_input=genes, n_batch=1).to("mps").train()
    batch = {
        "X": torch.rand(cells, genes, device="mps"),
        "batch": torch.zeros(cells, 1, dtype=torch.int64, device="mps"),
        "labels": torch.zeros(cells, 1, dtype=torch.int64, device="mps"),
    }

    def step() -> None:
        model.zero_grad()
        *_, found = model(batch)
        found.loss.backward()

    return step


class CifarBlock(nn.Module):
    """Two 3 x 3 convolutions; where the size halves, the shortcut takes every other pixel and adds empty channels."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__()
        self.stride = width // given
        self.added = (width - given) // 2
        self.first = nn.Conv2d(given, width, 3, stride=self.stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.relu(self.first_norm(self.first(x)))
        made = self.second_norm(self.second(made))
        if self.stride > 1:
            x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.added, self.added))
        made += x
        return torch.relu(made)


def cifar_resnet(depth: int) -> nn.Module:
    """The ResNets of the paper's section on CIFAR-10: `cifar/resnet_pytorch.py` of SarthakYadav/mlx-examples."""
    widths = [16] + [width for width in (16, 32, 64) for _ in range((depth - 2) // 6)]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *(CifarBlock(given, width) for given, width in pairwise(widths)),
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def cifar_epoch(depth: int, train: bool) -> Callable[[], None]:
    """A batch of 256 images as the benchmark times it: a training step with Adam, or a forward pass; then accuracy."""
    model = cifar_resnet(depth).to("mps").train(train)
    # The benchmark permutes what its loader gives, so the images are channels last in memory.
    images = torch.randn(256, 32, 32, 3, device="mps").permute(0, 3, 1, 2)
    labels = torch.randint(0, 10, (256,), device="mps")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        with torch.set_grad_enabled(train):
            made = model(images)
        if train:
            loss = nn.functional.cross_entropy(made, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.sum(torch.argmax(made, dim=1) == labels) / labels.shape[0]

    return step
