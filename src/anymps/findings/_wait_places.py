"""Places where the host waits: those that cost time in every step, and those that are fine.

A wait is fine if it happens once, now and then, or between steps, or if it copies the batch to the device. The rules
about waits in every step name the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from anymps.findings._costs import cost_of_wait
from anymps.findings._loop import MIN_STEPS, is_every_step, package_of, waits_per_step
from anymps.findings._model import Finding, Severity
from anymps.findings._prices import cost_in, steps_on_mac
from anymps.findings.advice import reads_action
from anymps.forecast import Forecast, WaitingLine
from anymps.record import Phase, Recording, Site, StepQueue, Wait, WaitQueue

HURTING: Final = frozenset(Wait) - {Wait.NONE, Wait.COPY_TO_MPS}
"""Kinds of wait that hurt in every step. A copy to the device is how the batch gets there."""


@dataclass(frozen=True)
class WaitPlace:
    """Waits at one line that either hurt or belong; `reason` is why they belong, empty if they hurt.

    Those that hurt are `needless`, unless the program has to have the value there: the action of an environment.
    """

    site: Site
    queues: tuple[WaitQueue, ...]
    hurts: bool
    needless: bool
    reason: str = ""
    on_mac_ns: tuple[float, float] | None = None
    """What the waits of a step cost on the recording's Mac, lowest and highest; None where the step has no time."""

    @property
    def kinds(self) -> tuple[Wait, ...]:
        """Why the host waited, the most frequent first."""
        return tuple(queue.wait for queue in self.queues)

    @property
    def count(self) -> int:
        """Waits in the whole run."""
        return sum(queue.count for queue in self.queues)

    @property
    def per_step(self) -> float:
        """Waits in a typical step."""
        return sum(queue.per_step for queue in self.queues)

    @property
    def longest(self) -> WaitQueue:
        """The waits that had most to wait for."""
        return max(self.queues, key=lambda queue: (queue.most_operators, queue.operators))

    @property
    def cost_per_step_ns(self) -> tuple[float, float]:
        """Lowest and highest estimate of what the waits of a step cost on a Mac.

        Where the step has no predicted time, these are public ranges, and draining the queue is not in them.
        """
        if self.on_mac_ns is not None:
            return self.on_mac_ns
        costs = [
            (queue.per_step / queue.count, cost_of_wait(queue.wait, queue.count, queue.moved_bytes))
            for queue in self.queues
        ]
        return sum(share * low for share, (low, _) in costs), sum(share * high for share, (_, high) in costs)


def wait_places(recording: Recording) -> tuple[WaitPlace, ...]:
    """Lines where the host waited: those that hurt first, the costliest before the others, then those that belong."""
    routine = {
        kind_at(wait.site, wait.wait)
        for wait in recording.waits()
        if wait.wait in HURTING and is_every_step(recording, wait)
    }
    kept = {mark.occurrence.site.file_line for mark in recording.noted("constant")}
    groups: dict[tuple[str, int, str], list[WaitQueue]] = {}
    for queue in recording.queues():
        constant = queue.wait is Wait.COPY_TO_MPS and queue.site.file_line in kept
        queue = replace(queue, per_step=waits_per_step(recording, queue.site, queue.per_step))
        reason = "" if kind_at(queue.site, queue.wait) in routine else _reason(recording, queue, constant=constant)
        groups.setdefault((*queue.site.file_line, reason), []).append(queue)
    steps = steps_on_mac(recording)
    places = []
    for (_, _, reason), queues in groups.items():
        site, hurts = queues[0].site, not reason
        needless = hurts and not reads_action(site)
        places.append(WaitPlace(site, tuple(queues), hurts, needless, reason, _on_mac(steps, queues, hurts=hurts)))
    hurting = sorted((place for place in places if place.hurts), key=lambda place: -place.cost_per_step_ns[1])
    belonging = sorted((place for place in places if not place.hurts), key=lambda place: -place.per_step)
    return (*hurting, *belonging)


def _on_mac(steps: list[Forecast], queues: list[WaitQueue], *, hurts: bool) -> tuple[float, float] | None:
    if not hurts:
        return None
    places = [WaitingLine(*kind_at(queue.site, queue.wait)) for queue in queues]
    return cost_in(steps, places, sum(queue.per_step for queue in queues))


def needless_places(places: Iterable[WaitPlace], findings: Iterable[Finding]) -> list[WaitPlace]:
    """Those whose waits the program could do without: by what they are, or by a finding about copies to the device."""
    serious = [finding for finding in findings if finding.severity is not Severity.INFO]
    copies = {
        site.file_line: finding.per_step
        for finding in serious
        if finding.rule.about_copies
        for site in (finding.site, *(finding.related_sites if finding.related_as == "also at" else ()))
    }
    return [
        place
        for place in places
        if place.needless
        # A line that copies the batch, too, is not among them.
        or (place.kinds == (Wait.COPY_TO_MPS,) and 0 < place.per_step <= copies.get(place.site.file_line, 0.0))
    ]


def waits_at(places: Iterable[WaitPlace], queues: Iterable[StepQueue]) -> int:
    """How many waits of a step are at these places."""
    kinds = {kind_at(queue.site, queue.wait) for place in places for queue in place.queues}
    return sum(kind_at(wait.site, wait.wait) in kinds for wait in queues)


def kind_at(site: Site, wait: Wait) -> tuple[str, int, Wait]:
    """File, line and kind of a wait: what counts as one place."""
    return *site.file_line, wait


def _reason(recording: Recording, queue: WaitQueue, *, constant: bool) -> str:
    """Why a wait belongs; never empty."""
    steps = [step.step for step in recording.steps() if step.complete]
    if not steps:
        return "once" if queue.count == 1 else "the run has no steps to judge it by"
    if queue.first_step > steps[-1]:
        return "after the last step"
    if queue.last_step <= steps[0] and len(steps) > 1:
        return "at the start"
    if len(steps) == 1:
        early = queue.last_step <= steps[0]
        return "in the only complete step, or before it" if early else "one complete step is too few to tell"
    if queue.wait is Wait.COPY_TO_MPS and 2 * queue.steps >= len(steps):
        if constant:
            return "copied to the device, though it had not changed"
        return "the loop's data on its way to the device" if Phase.MOVE in queue.phases else "copied to the device"
    if queue.every > 1:
        return f"every {queue.every:,} steps"
    often = f"in {queue.steps:,} of {len(steps):,} steps"
    if (package := package_of(queue.site)) and 2 * queue.steps >= len(steps):
        return f"inside the package `{package}`, {often}"
    return often if len(steps) >= MIN_STEPS else f"{often}, too few to tell whether in every one"
