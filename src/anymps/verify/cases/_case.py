"""One case: what a device is asked, and how its answer is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A case by its `id`, the same on every machine; `ask` gives the answer, and raises nothing of the device's.

    `alone`: in a process of its own, with these variables of the environment besides, since what it does would show in
    the next case or may end the process. `patience` is how many seconds may pass without an answer.
    """

    id: str
    ask: Callable[[], Answer]
    alone: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 90.0
