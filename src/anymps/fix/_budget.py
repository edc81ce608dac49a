"""The time limit of a proof: a few runs of the script, and a little more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MORE: Final = 1.2
_LEAST_S: Final = 30.0


@dataclass
class Budget:
    """`runs` times the longest run of the script and a fifth more; a short script gets 30 s.

    All that runs is entered with its seconds. A run that brought the script past the line that stopped it, or to mps,
    does not count: the next one shows more. `free` is what such runs took.
    """

    runs: int = 3
    spent: float = 0.0
    longest: float = 0.0
    free: float = 0.0

    def spend(self, seconds: float, *, whole: bool = True) -> None:
        """So long something ran; `whole` if that was the script to its end."""
        self.spent += seconds
        if whole:
            self.longest = max(self.longest, seconds)

    @property
    def left(self) -> float:
        """Seconds."""
        return max(_MORE * self.runs * self.longest, _LEAST_S) + self.free - self.spent

    @property
    def allows_run(self) -> bool:
        """Whether there is time for another run as long as the longest."""
        return self.left >= self.longest
