"""Models of torch's own layers: recurrent, translating, of derivatives and of graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from integration.models._cases import CLASSES, VOCABULARY, Built, case, tokens


class Tagger(nn.Module):
    """Embeds `ids`, runs a recurrent network over them and names a class for each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.recurrent = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, ids: Tensor, classes: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(ids))
        return nn.functional.cross_entropy(self.head(states).flatten(0, 1), classes.flatten(), reduction="none")


@case()
def lstm_tagger() -> Built:
    return Tagger(), {"ids": tokens(2, 9), "classes": torch.randint(CLASSES, (2, 9))}


class Translator(nn.Module):
    """`nn.Transformer` with a causal mask and a padding mask for what the decoder reads."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor, padding: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.transformer(source, target, tgt_mask=causal, memory_key_padding_mask=padding)


@case()
def transformer() -> Built:
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    return Translator(), {"source": torch.randn(2, 6, 16), "target": torch.randn(2, 5, 16), "padding": padding}


class GradientPenalty(nn.Module):
    """The loss of a physics-informed network: derivatives of the output by the input, themselves differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, points: Tensor) -> Tensor:
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            value = self.network(points)
            (first,) = torch.autograd.grad(value.sum(), points, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), points, create_graph=True)
        return second + value


@case()
def gradient_penalty() -> Built:
    return GradientPenalty(), {"points": torch.randn(8, 2)}


class GraphConvolution(nn.Module):
    """Messages along edges, summed and maximised where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(5, 8)
        self.update = nn.GRUCell(16, 5)

    def forward(self, nodes: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        sent = self.message(nodes)[sources]
        start = sent.new_zeros(len(nodes), sent.shape[1])
        summed = start.index_add(0, targets, sent)
        largest = start.scatter_reduce(0, targets[:, None].expand_as(sent), sent, "amax", include_self=False)
        return self.update(torch.cat([summed, largest], dim=1), nodes)


@case()
def graph_network() -> Built:
    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 0, 2, 0, 2]])
    return GraphConvolution(), {"nodes": torch.randn(5, 5), "sources": edges[0], "targets": edges[1]}
