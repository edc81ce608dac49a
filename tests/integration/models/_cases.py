"""The list of models, what they are given, and how one is trained: the same at every call, on any device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 99
CLASSES = 3

Batch = dict[str, Any]
Built = tuple[nn.Module, Batch]

OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
}


@dataclass(frozen=True)
class Case:
    """A model to train: `package` is what it needs beside torch (empty: nothing), `build` gives it and a batch."""

    name: str
    package: str
    build: Callable[[], Built]

    def __call__(self) -> Built:
        """The model, in training mode on the CPU, and the keyword arguments of its forward; the same at every call."""
        torch.manual_seed(0)
        model, batch = self.build()
        return model.train(), batch


CASES: dict[str, Case] = {}


def case(package: str = "") -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Registers a builder in `CASES` under its own name."""

    def register(build: Callable[[], Built]) -> Callable[[], Built]:
        CASES[build.__name__] = Case(build.__name__, package, build)
        return build

    return register


def to_device(value: Any, device: str) -> Any:
    """`value` with every tensor in it moved, through lists and dictionaries."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, list):
        return [to_device(item, device) for item in value]
    return value


def on_device(built: Built, device: str) -> Built:
    """A copy of the model and of the batch on `device`; the ones given stay as they are."""
    model, batch = built
    return copy.deepcopy(model).to(device), to_device(batch, device)


def loss_of(output: Any) -> Tensor:
    """The loss that the model computed, else the mean square of the first result."""
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    return floats_of(output)[0].square().mean()


def floats_of(output: Any) -> list[Tensor]:
    """The floating-point tensors of a model's output, in order, through nested tuples."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    values = output.to_tuple() if hasattr(output, "to_tuple") else output
    return [tensor for value in values if value is not None for tensor in floats_of(value)] if _nested(values) else []


def _nested(values: Any) -> bool:
    return isinstance(values, (tuple, list))


def train(built: Built, device: str, optimizer: str, steps: int = 3) -> tuple[list[float], nn.Module]:
    """The losses of `steps` steps on `device`, each before its step, and the trained copy of the model."""
    model, batch = on_device(built, device)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(steps):
        stepper.zero_grad()
        loss = loss_of(model(**batch))
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses, model


def tokens(*shape: int) -> Tensor:
    """Token numbers, int64, none of them a special one."""
    return torch.randint(3, VOCABULARY, shape)


def labels(count: int = 2, classes: int = CLASSES) -> Tensor:
    """Class numbers, int64 of shape (count,)."""
    return torch.randint(classes, (count,))


def images(size: int = 32, channels: int = 3) -> Tensor:
    """Two square pictures, float32 of shape (2, channels, size, size)."""
    return torch.randn(2, channels, size, size)


def texts() -> dict[str, Any]:
    """Two texts of 12 tokens, the second padded from the ninth on, to be predicted token by token."""
    ids = tokens(2, 12)
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def masked_texts() -> dict[str, Any]:
    """The same, every third token to be guessed."""
    batch = texts()
    wanted = torch.full_like(batch["labels"], -100)
    wanted[:, ::3] = batch["labels"][:, ::3]
    return {**batch, "labels": wanted}
