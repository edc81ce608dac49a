"""Steps of public benchmarks that need more than torchvision or transformers: a GCN, rebuilt, and scVI."""

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
