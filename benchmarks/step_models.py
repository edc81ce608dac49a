"""Models of public benchmarks, rebuilt: VGG-16 and ResNet-18 as torchvision has them, a GCN, CIFAR ResNets; scVI."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn


def vgg16_bn(classes: int) -> nn.Module:
    """VGG-16 with batch norms for images of 224 x 224: layer for layer torchvision's `vgg16_bn`."""
    layers: list[nn.Module] = []
    given = 3
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            layers += [nn.Conv2d(given, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            given = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
        nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, classes),
    )  # fmt: skip


class BasicBlock(nn.Module):
    """Two convolutions with norms beside a shortcut, which has a convolution where the size changes."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__()
        stride = width // given
        self.first = nn.Conv2d(given, width, 3, stride=stride, padding=1, bias=False)
        self.first_norm, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.shortcut = None
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(given, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.relu(self.first_norm(self.first(x)))
        made = self.second_norm(self.second(made))
        made += x if self.shortcut is None else self.shortcut(x)
        return self.relu(made)


def resnet18(classes: int) -> nn.Module:
    """ResNet-18: layer for layer torchvision's `resnet18`."""
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        *(BasicBlock(given, width) for given, width in pairwise(widths)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


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

    The benchmark takes rows by masks, which the device turns into places, and waits; here the places are given, behind
    a wait.
    """
    model = GraphConvolutions((1433, 16, 16, 7)).to("mps").train()
    x, adjacency = torch.randn(2708, 1433, device="mps"), torch.randn(2708, 2708, device="mps")
    labels = torch.randint(0, 7, (2708,), device="mps")
    train, validate = torch.arange(140, device="mps"), torch.arange(200, 500, device="mps")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3, foreach=False)
    loss_of = nn.CrossEntropyLoss()

    def rows(of: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        torch.mps.synchronize()
        return of[places]

    def epoch() -> None:
        optimizer.zero_grad()
        made = model(x, adjacency)
        loss_of(rows(made, train), rows(labels, train)).backward()
        optimizer.step()
        with torch.no_grad():
            loss_of(rows(made, validate), rows(labels, validate))
            found, wanted = rows(made, validate), rows(labels, validate)
            torch.mean((torch.argmax(found, dim=1) == wanted).float())

    return epoch


def scvi(cells: int, genes: int) -> Callable[[], None]:
    """Forward and backward of a resident batch through scVI with its defaults, without the optimizer."""
    from scvi.module import VAE

    model = VAE(n_input=genes, n_batch=1).to("mps").train()
    batch = {
        "X": torch.randint(0, 5, (cells, genes), device="mps").float(),
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
    # The benchmark permutes what its loader gives. With its torch 2.1 only the first convolution reads that, as what
    # MPS made was contiguous. Today channels last would go through the whole network.
    images = torch.randn(256, 3, 32, 32, device="mps")
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
