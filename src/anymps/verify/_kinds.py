"""The kinds of answers: what is asked, in the order in which it is asked, and with which variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Kind:
    """One kind: its name, what it asks, the environment variables that it runs with, and whether a case is alone.

    A case that is `alone` has a process of its own, since what it does would show in the next one.
    """

    name: str
    what: str
    environment: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False


KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("faults", "known bugs (MPS6xx): whether this Mac shows them"),
        Kind("waits", "calls that make the host wait"),
        Kind("streams", "random numbers by seed"),
        Kind(
            "fallbacks", "operators that fall back to the CPU, and their warnings", {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}
        ),
        Kind("operators", "torch's own operator database: results, gradients and invalid inputs"),
        Kind("memory", "the allocator's counters, and the errors at its limits", alone=True),
    )
}
"""Those first whose answers tell most for their time: each of them is a claim of the virtual device about a Mac."""
