"""The kinds of answers: what is asked, in which order, and how much of the time each may take."""

from __future__ import annotations

__all__ = ["KINDS", "Kind"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Kind:
    """One kind: its name, what it asks, its share of the time beside the others, and the variables it runs with."""

    name: str
    what: str
    share: float
    environment: Mapping[str, str] = field(default_factory=dict)


_FALLBACK: Final = {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("surface", "names and answers of torch.mps and its neighbours, and texts of refusals", 1),
        Kind("memory", "counters after allocations, and the texts of limits", 3),
        Kind("streams", "random numbers by seed", 1),
        Kind("waits", "calls that make the host wait", 2),
        Kind("pairs", "one operator and dtype at a time, at the edges of the dtype", 4),
        Kind("operators", "torch's own database of operators: results, gradients and wrong inputs", 14),
        Kind("fallbacks", "operators that run on the CPU, and what they warn", 1, _FALLBACK),
        Kind("times", "how long calls take", 5),
        # Last: what can take the process, or the whole graphical session, down.
        Kind("faults", "known faults (MPS6xx): does this Mac show them", 3),
    )
}
"""In the order in which they are asked."""
