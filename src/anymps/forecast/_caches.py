"""How long a program's own code would take with caches that nothing else fills, nearly as on a Mac.

There the GPU computes. Here the CPU does, and tensors and other programs fill its caches. A recording shows by how much
that slows code that runs once a step (`capture/_cold_code.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from anymps.cost import Happening

_USUAL: Final = 2.1
"""How many times as long as at once again the recorded code takes once a step where the calls have next to nothing to
do: what a program's own code and torch's evict themselves, on a Mac too. Measured in trainings of two small layers with
AdamW (2.0 to 2.2; Intel Xeon, Python 3.11); in one of a single small matrix with SGD it is 1.5."""

_LARGEST: Final = 6.0
"""How many times what cold caches cost the recorded code they cost a gap at most, as code that repeats itself soon has
them warm: what they cost a step of AdamW, the longest code of torch that runs between two calls (5 to 7 times)."""


class Caches(NamedTuple):
    """Code that runs once took `slower` times as long as with usual caches, but at most `most` seconds longer."""

    slower: float = 1.0
    most: float = 0.0

    @classmethod
    def of(cls, measured: Sequence[float]) -> Caches:
        """By the microseconds of a first and of a second run that a recording holds."""
        if len(measured) != 2:
            return cls()
        first, again = measured
        usual = _USUAL * again
        return cls(first / usual, _LARGEST * 1e-6 * (first - usual)) if first > usual else cls()

    def warm(self, happenings: Sequence[Happening], speed: float) -> list[Happening]:
        """The happenings with what their code takes with usual caches. `speed` is that of the recording machine.

        Making a batch is such code too; what a fallback computes is not.
        """
        if self.slower == 1.0:
            return list(happenings)
        slower, most = self.slower, self.most * speed

        def warm(seconds: float) -> float:
            return max(seconds / slower, seconds - most)

        return [
            happening._replace(
                host_code=warm(happening.host_code),
                work=warm(happening.work) if happening.kind == "batch" and happening.work else happening.work,
            )
            for happening in happenings
        ]
