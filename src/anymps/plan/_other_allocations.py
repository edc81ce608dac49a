"""How much memory other allocations take besides PyTorch's heaps, by public logs, kind of model and release.

Torch's out-of-memory error names both parts: "MPS allocated" is its heaps, "other allocations" is all else that Metal
counts for the process, MPSGraph's graphs and their buffers first. The logs are listed in docs/evidence.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

_MIB: Final = 1 << 20


class Kind(str, Enum):
    """What a model reads, by which its logs differ."""

    TOKENS = "tokens"
    """It looks up embeddings: a language model."""
    OTHER = "other"
    """Pictures, sound, tables."""


@dataclass(frozen=True)
class OtherAllocations:
    """What to expect: a share of all memory in use, and at least so many bytes; how many of the logs stay below it."""

    kind: Kind
    share: float
    least: int
    below: int
    logs: int

    def beside(self, heaps: int) -> int:
        """Bytes beside heaps of so many bytes."""
        return max(self.least, round(heaps * self.share / (1 - self.share)))


_TOKENS: Final = OtherAllocations(Kind.TOKENS, 0.37, 0, 5, 7)
_UP_TO_2_11: Final = {Kind.TOKENS: _TOKENS, Kind.OTHER: OtherAllocations(Kind.OTHER, 0.18, 0, 10, 12)}
# From torch 2.12 on the logs are of trainings that never change their sizes: up to 86 MiB. What a language model takes
# whose sizes change, only the older logs tell.
_FROM_2_12: Final = {Kind.TOKENS: _TOKENS, Kind.OTHER: OtherAllocations(Kind.OTHER, 0.0, 256 * _MIB, 3, 3)}


def other_allocations(kind: Kind, torch_minor: int) -> OtherAllocations:
    """What to expect of a kind of model on torch 2.`torch_minor`."""
    return (_UP_TO_2_11 if torch_minor <= 11 else _FROM_2_12)[kind]
