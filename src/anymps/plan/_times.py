"""How long a step would take on each Mac, how many samples and tokens a second that is, and which Mac to choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anymps._errors import CostError
from anymps.cost import Ratio, WalkedStep, speed_ratio, walk_step
from anymps.mac import Mac, all_macs
from anymps.plan._measure import Measured
from anymps.plan._trace import Kind, MacOutcome, Verdict


@dataclass(frozen=True)
class MacTime:
    """A step on one Mac.

    `verdict` is what the Mac's memory makes of the run. Where it pages or fails there is no `time`, nor for a Mac whose
    rates are not known. `samples` and `tokens` are a second's, None where the batch, or the sequence, is not known, as
    `largest_batch` may be. `speed` is how many times as fast a step is as on one's `own` Mac, None where there is none
    to compare with.
    """

    mac: Mac
    verdict: Verdict
    time: WalkedStep | None
    samples: float | None = None
    tokens: float | None = None
    largest_batch: int | None = None
    speed: Ratio | None = None
    own: bool = False

    @property
    def no_time(self) -> str:
        """Why a Mac has no time although its memory does; empty where it has one."""
        if self.time is not None or not self.verdict.has_room:
            return ""
        known = self.mac.fp32_peak is not None
        return "too few of the step's calls have a known time" if known else "the clock of its GPU is not public"


def step_times(
    measured: Measured, outcomes: Sequence[MacOutcome], torch: str, asked: Sequence[Mac] = ()
) -> tuple[MacTime, ...]:
    """A step on the Macs asked about, else on each chip with its fewest GPU cores, with the least memory that does.

    `outcomes` are those of the Macs asked about, else of one of each memory size. The slowest comes first, and last the
    Macs without a time. Empty where less than nine tenths of the step's calls have a predicted time on any Mac.
    """
    if measured.work is None:
        return ()
    if asked:
        pairs = [(outcome.mac, outcome.verdict) for outcome in outcomes]
    else:
        pairs = _by_chip({outcome.mac.ram_gib: outcome.verdict for outcome in outcomes})
    found = [mac_time(measured, mac, verdict, torch) for mac, verdict in pairs]
    if all(timed.time is None for timed in found):
        return ()
    return tuple(
        sorted(found, key=lambda timed: (timed.time is None, -timed.time.seconds if timed.time is not None else 0.0))
    )


def choices(
    outcomes: Sequence[tuple[MacOutcome, int | None]], times: Sequence[MacTime], own: MacTime | None
) -> tuple[MacTime, ...]:
    """The Macs in the order of their times, the slowest first, one's own before them; without times by memory.

    `outcomes` are of the Macs asked about, else of one of each memory size, each with the largest batch there. The time
    of one's own Mac is that with memory enough.
    """
    found = [MacTime(outcome.mac, outcome.verdict, None, largest_batch=largest) for outcome, largest in outcomes]
    if times:
        by_memory = {one.mac.ram_gib: one.largest_batch for one in found}
        by_mac = {one.mac: one.largest_batch for one in found}
        found = [replace(one, largest_batch=by_mac.get(one.mac, by_memory.get(one.mac.ram_gib))) for one in times]
    if own is None:
        return tuple(found)
    step = own.time
    found = [one for one in found if one.mac.name != own.mac.name]
    if step is not None:
        own = replace(own, speed=Ratio(1.0, 1.0, 1.0))
        found = [one if one.time is None else replace(one, speed=speed_ratio(one.time, step)) for one in found]
    if not own.verdict.has_room:
        own = replace(own, time=None, samples=None, speed=None)
    return own, *found


def _by_chip(verdicts: dict[int, Verdict]) -> list[tuple[Mac, Verdict]]:
    """Each chip once: with its fewest GPU cores, and the least memory that the run fits in, else the most there is."""
    chips: dict[str, list[Mac]] = {}
    for mac in all_macs():
        if mac.ram_gib in verdicts:
            chips.setdefault(mac.chip, []).append(mac)
    pairs = []
    for macs in chips.values():
        fewest = min(mac.gpu_cores for mac in macs)
        bins = sorted((mac for mac in macs if mac.gpu_cores == fewest), key=lambda mac: mac.ram_gib)
        every = sorted(macs, key=lambda mac: (mac.ram_gib, mac.gpu_cores))
        good = [mac for mac in (*bins, *every) if verdicts[mac.ram_gib].has_room]
        mac = good[0] if good else every[-1]
        pairs.append((mac, verdicts[mac.ram_gib]))
    return pairs


def mac_time(measured: Measured, mac: Mac, verdict: Verdict, torch: str) -> MacTime:
    """A step on one Mac, as far as its memory does and a time is predicted."""
    work = measured.work
    if work is None or not verdict.has_room:
        return MacTime(mac, verdict, None)
    try:
        time = walk_step(work.happenings, mac, torch, busy=work.busy)
    except CostError:
        return MacTime(mac, verdict, None)
    if not time.device or not time.covered:
        return MacTime(mac, verdict, None)
    samples = measured.batch * max(1, work.batches) / time.seconds if measured.batch else None
    reads_tokens = measured.sequence is not None and measured.kind is Kind.TOKENS
    tokens = samples * measured.sequence if samples is not None and reads_tokens and measured.sequence else None
    return MacTime(mac, verdict, time, samples, tokens)
