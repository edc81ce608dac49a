"""What waits and copies cost on a Mac, as ranges from public measurements. None of them is ours.

A read also drains the GPU's queue: the host then cannot run ahead, which costs more if the queue is longer (6 of 10 ms
of a step in one trainer, CodefyUI PR 435). That part depends on the script and is not in the ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

from anymps.record import Wait
from anymps.rules.texts import format_size


@dataclass(frozen=True)
class Cost:
    """A fixed part per call in ns, and a rate in bytes/ns (= GB/s) per byte moved; low and high end of both."""

    fixed_ns: tuple[float, float]
    rate: tuple[float, float] | None = None
    source: str = ""

    def of(self, count: int, moved_bytes: int = 0) -> tuple[float, float]:
        """Lowest and highest estimate, in ns, for `count` calls that move `moved_bytes` in all."""
        low, high = (count * part for part in self.fixed_ns)
        if self.rate is not None:
            slow, fast = self.rate
            low, high = low + moved_bytes / fast, high + moved_bytes / slow
        return low, high


SYNCHRONIZE = Cost(
    (100_000, 450_000),
    source="a wait costs 0.12 ms on an M4 Pro (pytorch PR 150452), 0.15 to 0.48 ms from M1 to M4 (mlx-benchmark)",
)

ITEM = Cost(
    (100_000, 450_000),
    source="an .item() costs 0.10 ms on an M4 Pro with an empty queue (pytorch PR 182731)",
)

COPY = Cost(
    (100_000, 480_000),  # that of a wait, which it is, and up to 30 us
    rate=(40, 75),
    source="a blocking copy costs 0.11 to 0.12 ms on an M4 Pro, then 40 to 75 GB/s (pytorch PR 182749)",
)

FALLBACK = Cost(
    (300_000, 600_000),
    rate=(40, 75),
    source="a fallback is a wait, a copy there and a copy back (pytorch PRs 150452 and 182749)",
)

LAUNCH = Cost(
    (1_200, 20_000),
    source=(
        "launching a kernel takes the host 1.2 to 1.4 us if it is one of torch's own and 20 us through MPSGraph, "
        "on an M1 Pro (pytorch PR 148219)"
    ),
)
_KEPT_GRAPH = (55_000, 850_000)  # bytes
KEPT_SOURCE = (
    "a kept graph takes about 55 KB (pyg-team/pytorch_geometric PR 10689) to 0.85 MB (pytorch issue 171679: 1 GB after "
    "1,200 of them)"
)


def kept_graphs(graphs: int) -> str:
    """`3.15 MiB to 48.64 MiB`: what so many graphs of MPSGraph keep, which no counter of torch shows."""
    low, high = (format_size(graphs * each) for each in _KEPT_GRAPH)
    return f"{low} to {high}"


_COST_OF = {
    Wait.ITEM: ITEM,
    Wait.INSIDE_OPERATOR: ITEM,
    Wait.COPY_TO_CPU: COPY,
    Wait.COPY_TO_MPS: COPY,
    Wait.FALLBACK: FALLBACK,
}


def cost_of_wait(wait: Wait, count: int, moved_bytes: int) -> tuple[float, float]:
    """Lowest and highest estimate, in ns, of `count` waits that move `moved_bytes` in all."""
    return _COST_OF.get(wait, SYNCHRONIZE).of(count, moved_bytes)
