"""The plan: one script, measured a few times on shapes, and the result for every Mac."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Final

from anymps._errors import PlanError
from anymps._numbers import digits
from anymps.mac import Mac, all_macs
from anymps.plan._fixes import Fix, first_fixes
from anymps.plan._measure import BATCH, Measured, Stopped, measure
from anymps.plan._scenario import Scenario
from anymps.plan._times import MacTime, choices, mac_time, step_times
from anymps.plan._trace import MacOutcome, OtherAllocations, Stretch, Trace, Verdict, other_allocations
from anymps.runs import Order, Runner

USUAL_GIB: Final = 16
"""A run that fits every Mac with so much memory needs no changes, unless a smaller Mac is asked about (our choice)."""

_Run = Callable[[Scenario], Measured]


class NoLarger(str, Enum):
    """Why the largest batch is not known."""

    NO_BATCH = "no batch"
    """No data loader gives batches, and the arguments hold no size."""
    OTHER_COURSE = "other course"
    STOPPED = "stopped"
    LATE = "late"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Row:
    """One Mac: what happens as the script is written, and the largest batch that fits, others included."""

    outcome: MacOutcome
    largest_batch: int | None
    """None if the batch is not known, or changes the course of the run."""
    recovery: Measured | None = None
    """The run in the memory of this Mac, where the script was seen to go on after it fails."""


@dataclass(frozen=True)
class TriedChange:
    """One change to the script and what it does to the peak; bytes."""

    scenario: Scenario
    peak_allocated: int
    peak_reserved: int
    outcomes: tuple[MacOutcome, ...] = ()
    """On the Macs that were asked about."""
    times: tuple[MacTime, ...] = ()
    """A step on the Macs that were asked about, else on the slowest that the script fits on as it is written."""
    problem: str = ""
    """Why this change could not be tried; then the numbers are 0."""
    adapters: int = 0
    """Linear layers for which it assumes LoRA adapters, because the script trains their weights."""


@dataclass(frozen=True)
class Plan:
    """All that is known before the first real run. `asked` are the Macs that were asked about, none if all were."""

    script: str
    base: Measured
    rows: tuple[Row, ...]
    changes: tuple[TriedChange, ...]
    asked: tuple[Mac, ...]
    torch: str
    others: OtherAllocations
    """What other allocations are expected to take beside the heaps."""
    fixes: tuple[Fix, ...] = ()
    """What to change first, in this order; empty if the run fits the Macs asked about, else every one from 16 GB on."""
    no_larger: NoLarger | None = None
    """Why the largest batch is not known; None where it is."""
    problem: str = ""
    """What stopped the script with a larger batch."""
    times: tuple[MacTime, ...] = ()
    """A step on the Macs that were asked about, else on each chip; the slowest first. Empty where none is predicted."""
    times_of: str = ""
    """The release of torch whose times these are, where it is another one than `torch`."""
    own: MacTime | None = None
    """One's own Mac, with its time as if the memory did, where the others are compared with one."""

    @property
    def choices(self) -> tuple[MacTime, ...]:
        """Which Mac? The Macs that were asked about, else each chip, in one row each; one's own comes first."""
        return choices([(row.outcome, row.largest_batch) for row in self.rows], self.times, self.own)


def make_plan(
    order: Order,
    *,
    asked: Sequence[Mac] = (),
    what_if: Sequence[Scenario] = (),
    base: Scenario | None = None,
    torch_version: str,
    times_of: str = "",
    larger: bool = True,
    other_memory: int = 0,
    against: Mac | None = None,
    say: Callable[[str], None] = lambda text: None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Plan:
    """Measure a script and give its trace to the allocators of the Macs asked about, else of one of each memory size.

    `times_of` is another release of torch, whose times are predicted. With `larger` a second measurement tells the
    largest batch; that it fails is no failure of the plan. `against` is the Mac with which the others are compared.
    `say` is told what goes on. `other_memory` is what other programs take, in bytes. `meanwhile` is called while the
    first measurement runs; the allocators are needed then.
    Raises PlanError, in one line, if the script cannot be measured as it is written.
    """
    minor = digits(torch_version.split(".")[1])
    asked, every = ([replace(mac, other_memory=other_memory) for mac in macs] for macs in (asked, representative()))
    against = replace(against, other_memory=other_memory) if against is not None else None
    first = base or Scenario()

    with Runner(min(2, os.cpu_count() or 1)) as runner:  # each takes a whole process and its memory
        once = _Once(order, runner, say)
        started = once.start(first)
        tried = [(scenario, once.start(scenario)) for scenario in (_merge(first, other) for other in what_if)]
        meanwhile()
        measured = started.result()
        grown = _larger(order.words, measured, once) if larger else (None, NoLarger.NOT_MEASURED, "")
        (stretch, no_larger, problem), trace = grown, measured.trace
        largest = cache(lambda mac: stretch.largest(mac, minor) if stretch is not None else None)
        rows = []
        for one in asked or every:
            outcome = trace.replay(one, minor)
            recovery = _recovery(once, first, measured, outcome) if asked else None
            rows.append(Row(outcome, largest(one), recovery))
        release = times_of or torch_version
        times = step_times(measured, [row.outcome for row in rows], release, asked)
        timed = asked or [one.mac for one in times if one.time is not None][:1]
        shown = asked or [row.outcome.mac for row in rows if not row.outcome.verdict.has_room][:1]
        changes = tuple(_change(scenario, future, shown, timed, torch_version, release) for scenario, future in tried)
    halved = _halved(stretch, minor) if measured.batch != 1 else None
    beside = other_allocations(measured.kind, minor)
    outcomes = [row.outcome for row in rows if asked or row.outcome.mac.ram_gib >= USUAL_GIB]
    fixes = first_fixes(measured, halved, outcomes)
    return Plan(
        script=" ".join(order.words),
        base=measured,
        rows=tuple(rows),
        changes=changes,
        asked=tuple(asked),
        torch=torch_version,
        times_of=times_of,
        others=beside,
        fixes=fixes,
        no_larger=no_larger,
        problem=problem,
        times=times,
        own=_own(measured, against, trace, largest(against), minor, release) if against is not None else None,
    )


def _own(measured: Measured, mac: Mac, trace: Trace, largest: int | None, minor: int, times_of: str) -> MacTime:
    """What a plan knows of one's own Mac."""
    free = mac_time(measured, mac, Verdict.FITS, times_of)
    return replace(free, verdict=trace.replay(mac, minor).verdict, largest_batch=largest, own=True)


class _Once:
    """Measures each scenario once, within each Mac's memory; `say` is told which measurements are under way."""

    def __init__(self, order: Order, runner: Runner, say: Callable[[str], None]) -> None:
        self._order, self._runner, self._say = order, runner, say
        self._futures: dict[tuple[Scenario, Mac | None], Future[Measured]] = {}
        self._under_way: list[str] = []

    def __call__(self, scenario: Scenario, limits: Mac | None = None) -> Measured:
        return self.start(scenario, limits).result()

    def start(self, scenario: Scenario, limits: Mac | None = None) -> Future[Measured]:
        """Measure it if that has not begun."""
        key = scenario, limits
        if key not in self._futures:
            self._futures[key] = self._runner.submit(self._measure, scenario, limits)
        return self._futures[key]

    def _measure(self, scenario: Scenario, limits: Mac | None) -> Measured:
        label = f"{scenario.label}{f' within {limits.name}' if limits is not None else ''}"
        self._tell([*self._under_way, label])
        try:
            return measure(self._order, scenario, limits)
        finally:
            self._tell([other for other in self._under_way if other != label])

    def _tell(self, under_way: list[str]) -> None:
        self._under_way = under_way
        self._say(f"measuring on shapes: {'; '.join(under_way)}" if under_way else "working out memory and times")


def representative() -> tuple[Mac, ...]:
    """One Mac of each memory size that was sold: the newest chip that came with it, with its fewest GPU cores."""
    by_memory: dict[int, Mac] = {}
    for mac in all_macs():
        known = by_memory.get(mac.ram_gib)
        if known is None or (mac.generation, -mac.gpu_cores) > (known.generation, -known.gpu_cores):
            if known is not None and mac.chip.startswith("Apple A"):
                continue
            by_memory[mac.ram_gib] = mac
    return tuple(by_memory[size] for size in sorted(by_memory))


def _merge(base: Scenario, change: Scenario) -> Scenario:
    unsaid = vars(Scenario())
    return replace(base, **{name: value for name, value in vars(change).items() if value != unsaid[name]})


def _larger(words: Sequence[str], measured: Measured, run: _Run) -> tuple[Stretch | None, NoLarger | None, str]:
    """How memory grows with the batch, from another run with twice the batch; else why not, and what stopped it."""
    batch = (
        measured.scenario.batch if any(BATCH in word for word in words) else (measured.scenario.batch or measured.batch)
    )
    if not batch:
        return None, NoLarger.NO_BATCH, ""
    try:
        if batch == 1:
            # Of a batch of one many copies are views, so it takes another course than all others: those tell more.
            batch, measured = 2, run(replace(measured.scenario, batch=2))
        larger = run(replace(measured.scenario, batch=2 * batch))
    except Stopped as stopped:
        return None, NoLarger.STOPPED, stopped.what
    except PlanError as error:
        return None, NoLarger.STOPPED, error.reason
    if measured.limit is not None or larger.limit is not None:
        return None, NoLarger.LATE, ""
    stretch = Stretch.between(measured.trace, batch, larger.trace, 2 * batch)
    return stretch, None if stretch is not None else NoLarger.OTHER_COURSE, ""


def _recovery(
    run: Callable[[Scenario, Mac], Measured], scenario: Scenario, measured: Measured, outcome: MacOutcome
) -> Measured | None:
    """How the script behaves on a Mac whose memory is too small, if its code shows that."""
    if outcome.verdict is not Verdict.FAILS or not measured.retries:
        return None
    try:
        within = run(scenario, outcome.mac)
    except PlanError:
        return None
    return within if within.steps and within.limit is None else None


def _halved(stretch: Stretch | None, minor: int) -> int | None:
    """The peak of the heaps with half the batch, on a Mac that has room for it."""
    if stretch is None or stretch.batch < 2:
        return None
    roomiest = max(all_macs(), key=lambda one: one.recommended_max_memory)
    return stretch.at(stretch.batch // 2).replay(roomiest, minor).peak_reserved


def _change(
    scenario: Scenario, future: Future[Measured], shown: Sequence[Mac], timed: Sequence[Mac], torch: str, times_of: str
) -> TriedChange:
    try:
        measured = future.result()
    except Stopped as stopped:
        return TriedChange(scenario, 0, 0, problem=f"the script stopped: {stopped.what}")
    except PlanError as error:
        return TriedChange(scenario, 0, 0, problem=error.reason)
    if measured.without_effect:
        return TriedChange(scenario, 0, 0, problem=f"it changed nothing: {measured.without_effect}")
    if measured.limit is not None:
        return TriedChange(scenario, 0, 0, problem=f"it took longer than the {measured.limit:g} s of --seconds")
    if scenario.accumulate:  # each measured step is one part of the batch
        measured = replace(measured, work=None)
    minor = digits(torch.split(".")[1])
    outcomes = {mac: measured.trace.replay(mac, minor) for mac in (*shown, *timed)}
    return TriedChange(
        scenario,
        measured.peak.allocated,
        measured.story.peak_reserved,
        tuple(outcomes[mac] for mac in shown),
        tuple(mac_time(measured, mac, outcomes[mac].verdict, times_of) for mac in timed),
        adapters=measured.adapters,
    )
