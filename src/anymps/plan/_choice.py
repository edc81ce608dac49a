"""Which Mac? One row for each: whether the run fits, the largest batch, how long a step takes and what binds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anymps.cost import Ratio, WalkedStep, speed_ratio
from anymps.mac import Mac
from anymps.plan._times import MacTime
from anymps.plan._trace import Outcome, Verdict


@dataclass(frozen=True)
class Choice:
    """One Mac. `largest_batch` is None where it is not known, `time` where none is predicted or the run does not fit.

    `samples` are a second's, None where the batch is not known. `speed` is how many times as fast a step is as on one's
    own Mac, None where there is none to compare with; `own` says that this is it.
    """

    mac: Mac
    verdict: Verdict
    largest_batch: int | None
    time: WalkedStep | None = None
    samples: float | None = None
    speed: Ratio | None = None
    own: bool = False


@dataclass(frozen=True)
class Own:
    """One's own Mac, with which the others are compared.

    `step` is its time as if the memory did, which it has where it pages or fails, too; None where none is predicted.
    """

    choice: Choice
    step: WalkedStep | None


def choices(
    outcomes: Sequence[tuple[Outcome, int | None]], times: Sequence[MacTime], own: Own | None
) -> tuple[Choice, ...]:
    """The Macs in the order of their times, the slowest first, one's own before them; without times by memory.

    `outcomes` are of the Macs asked about, else of one of each memory size, each with the largest batch there.
    """
    found = _choices(outcomes, times)
    if own is None:
        return found
    mine = replace(own.choice, own=True, speed=Ratio(1.0, 1.0, 1.0) if own.choice.time is not None else None)
    rest = [choice for choice in found if choice.mac.name != own.choice.mac.name]
    step = own.step
    if step is None:
        return (replace(mine, speed=None), *rest)
    return (
        mine,
        *(
            replace(choice, speed=speed_ratio(choice.time, step)) if choice.time is not None else choice
            for choice in rest
        ),
    )


def _choices(outcomes: Sequence[tuple[Outcome, int | None]], times: Sequence[MacTime]) -> tuple[Choice, ...]:
    if not times:
        return tuple(Choice(outcome.mac, outcome.verdict, largest) for outcome, largest in outcomes)
    by_mac = {outcome.mac: largest for outcome, largest in outcomes}
    by_memory = {outcome.mac.ram_gib: largest for outcome, largest in outcomes}
    return tuple(
        Choice(
            mac_time.mac,
            mac_time.verdict,
            by_mac.get(mac_time.mac, by_memory.get(mac_time.mac.ram_gib)),
            mac_time.time,
            mac_time.samples,
        )
        for mac_time in times
    )
