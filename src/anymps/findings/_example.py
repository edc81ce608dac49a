"""The example of a rule: lines that give the finding, and nearly the same lines that do not.

`anymps explain` and the pages under docs/rules show them; the tests run them on the virtual device.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final

from anymps._settings import variable_of

_DEVICE: Final = """\
import torch

device = "mps"
"""
_TRAINING: Final = """\
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.rand(8, 4) for _ in range(5)]


def train(x):
    loss = model(x.to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
"""


@dataclass(frozen=True)
class Example:
    """A few lines of Python that follow `setup`: `bad` gives the rule's finding, `good` gives none.

    They may be indented as the code around them. `fallback`, `check_shaders`, `cuda_as_mps` and `alone` are
    settings of `anymps run`, `mac` is the Mac to run on.
    """

    bad: str
    good: str
    fallback: bool = False
    check_shaders: bool = False
    cuda_as_mps: bool = False
    alone: bool = False
    mac: str = "M3 Pro 18GB"

    def __post_init__(self) -> None:
        for name in ("bad", "good"):
            object.__setattr__(self, name, textwrap.dedent(getattr(self, name)).strip() + "\n")

    @property
    def variables(self) -> dict[str, str]:
        """The environment that both halves run in."""
        names = ("fallback", "alone", "cuda_as_mps", "check_shaders")
        return {variable_of(name): "1" for name in names if getattr(self, name)}

    @property
    def setup(self) -> str:
        """The lines before both: torch and `device`, and a small model with `batches` and `train(x)` where used."""
        trains = re.search(r"\b(?:model|optimizer|batches|train)\b", self.bad + self.good)
        return f"{_DEVICE}{_TRAINING}" if trains else _DEVICE
