"""One case: what a device is asked, and how its answer is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A case by its `id`, the same on every machine; `ask` gives the answer, and raises nothing of the device's."""

    id: str
    ask: Callable[[], Answer]


def in_turn(rows: Sequence[Sequence[Case]]) -> list[Case]:
    """The cases of all rows, in rounds: one of each row, and in each round every row at another of its places.

    So a run that its time cuts off has something of every row (an operator) and of every place in one (a dtype).
    """
    rounds = range(max(map(len, rows), default=0))
    return [row[(number + turn) % len(row)] for turn in rounds for number, row in enumerate(rows) if turn < len(row)]
