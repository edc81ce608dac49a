"""The kinds of answers: what is asked, in which order, and the share of the time for each."""

from __future__ import annotations

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
        Kind("surface", "names and values in torch.mps and related modules, and error messages", 1),
        Kind("memory", "the allocator's counters, and the errors at its limits", 3),
        Kind("streams", "random numbers by seed", 1),
        Kind("waits", "calls that make the host wait", 2),
        Kind("pairs", "operators by dtype, at the limits of the dtype", 4),
        Kind("operators", "torch's own operator database: results, gradients and invalid inputs", 14),
        Kind("fallbacks", "operators that fall back to the CPU, and their warnings", 1, _FALLBACK),
        Kind("times", "how long calls take", 5),
        # Last: what can take the process, or the whole graphical session, down.
        Kind("faults", "known faults (MPS6xx): whether this Mac shows them", 3),
    )
}
"""In the order in which they are asked."""
