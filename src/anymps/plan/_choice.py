"""Which Mac? One row for each: whether the run fits, the largest batch, how long a step takes and what binds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anymps.cost import WalkedStep
from anymps.mac import Mac
from anymps.plan._times import MacTime
from anymps.plan._trace import LARGEST_BATCH, Outcome, Verdict


@dataclass(frozen=True)
class Choice:
    """One Mac. `largest_batch` is None where it is not known, `time` where none is predicted or the run does not fit.

    `samples` are a second's, None where the batch is not known.
    """

    mac: Mac
    verdict: Verdict
    largest_batch: int | None
    time: WalkedStep | None = None
    samples: float | None = None

    @property
    def larger_unknown(self) -> bool:
        """Whether larger batches than `largest_batch` were not looked at."""
        return self.largest_batch == LARGEST_BATCH


def choices(outcomes: Sequence[tuple[Outcome, int | None]], times: Sequence[MacTime]) -> tuple[Choice, ...]:
    """The Macs in the order of their times, the slowest first; without any time, in that of their memory.

    `outcomes` are of the Macs asked about, else of one of each memory size, each with the largest batch there.
    """
    if not times:
        return tuple(Choice(outcome.mac, outcome.verdict, largest) for outcome, largest in outcomes)
    by_mac = {outcome.mac: largest for outcome, largest in outcomes}
    by_memory = {outcome.mac.ram_gib: largest for outcome, largest in outcomes}
    return tuple(
        Choice(it.mac, it.verdict, by_mac.get(it.mac, by_memory.get(it.mac.ram_gib)), it.time, it.samples)
        for it in times
    )
