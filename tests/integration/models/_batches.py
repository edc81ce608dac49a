"""What models are given: texts, pictures and class numbers, drawn from torch's default generator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

VOCABULARY = 99
CLASSES = 3


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
