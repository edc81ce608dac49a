"""What findings about waits and launches cost on the Mac of the run: how much shorter a step would be without them.

If the step cannot be predicted, and for all other findings, the ranges of `_costs.py` are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from anymps.findings._loop import MIN_STEPS, AtLine
from anymps.findings._model import Finding, Rule
from anymps.forecast import Forecast, WaitingLine, loop_forecasts, try_forecast
from anymps.record import Recording, Site, Wait, WaitQueue

_COPIES: Final = frozenset({Wait.COPY_TO_MPS, Wait.COPY_TO_CPU})
_REPEATED: Final = 10
"""Copies at one line that are a loop's, such as those of a validation, and not a few now and then."""


@dataclass(frozen=True)
class SeldomStep:
    """A step that copies to the device at `places` where the typical one does not, such as one with a validation.

    `part` is the part of the predicted time of all steps that steps with these copies take.
    """

    step: Forecast
    part: float
    places: frozenset[WaitingLine]


def step_on_mac(recording: Recording) -> Forecast | None:
    """The typical step on the recording's Mac; None where its time is not told."""
    if recording.complete_steps < MIN_STEPS:
        return None
    found = try_forecast(recording)
    return found if found is not None and not found.no_time else None


def steps_on_mac(recording: Recording) -> list[Forecast]:
    """The same, and after it a step of each loop where a script trains in several; none where no time is told."""
    step = step_on_mac(recording)
    if step is None:
        return []
    return [step, *(other for other in loop_forecasts(recording) if other is not None and not other.no_time)]


def seldom_steps(recording: Recording) -> tuple[SeldomStep, ...]:
    """One for each step that is taken for those like it; none where no time is told."""
    typical = step_on_mac(recording)
    if typical is None:
        return ()
    usual = {wait.place for wait in typical.waits}
    steps = {step.step: step for step in recording.steps()[1:] if step.complete}
    alike: dict[int, list[WaitQueue]] = {}
    for queue in recording.queues():
        if queue.wait is Wait.COPY_TO_MPS and queue.count >= _REPEATED and _place(queue) not in usual:
            number = next(filter(steps.get, (queue.first_step, queue.last_step)), None)
            if number is not None:
                alike.setdefault(number, []).append(queue)
    found = []
    for number, queues in alike.items():
        step = try_forecast(recording, step=steps[number])
        if step is not None:
            like_it = max(queue.steps for queue in queues)
            seconds = like_it * step.time.seconds
            others = (recording.complete_steps - like_it) * typical.time.seconds
            found.append(SeldomStep(step, seconds / (seconds + others), frozenset(map(_place, queues))))
    return tuple(found)


def _place(queue: WaitQueue) -> WaitingLine:
    return WaitingLine(*queue.site.file_line, queue.wait)


def cost_in(steps: Iterable[Forecast], places: Sequence[WaitingLine], waits: float) -> tuple[float, float] | None:
    """What `cost_without` says of the first of the steps that waits at these places."""
    return next(filter(None, (cost_without(step, places, waits) for step in steps)), None)


def cost_without(step: Forecast, places: Iterable[WaitingLine], waits: float) -> tuple[float, float] | None:
    """Lowest and highest estimate, in ns, of what `waits` waits a step cost at these places; None if it has none there.

    A copy that is not needed goes with its wait.
    """
    chosen = set(places)
    number = sum(wait.waits for wait in step.waits if wait.place in chosen)
    if not number or not waits:
        return None
    # A finding may be about some of the waits of a line alone, and costs their part.
    seconds = step.time.saved(chosen, {place for place in chosen if place.wait in _COPIES}) * min(1.0, waits / number)
    return interval_ns(step, seconds)


def priced(recording: Recording, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those about waits and launches of a step with what they cost it on the recording's Mac."""
    found = list(findings)
    if not any((finding.rule.waits or finding.rule.price) and finding.per_step for finding in found):
        return found
    steps = steps_on_mac(recording)
    return [_priced(finding, steps, recording) for finding in found] if steps else found


def _priced(finding: Finding, steps: list[Forecast], recording: Recording) -> Finding:
    rule = finding.rule
    if not finding.per_step:
        return finding
    if rule.price is not None:
        seconds = rule.price(finding, recording)
        cost = None if seconds is None else interval_ns(steps[0], seconds)
    else:
        places = [WaitingLine(*site.file_line, kind) for site in _sites(finding, rule) for kind in rule.waits]
        cost = cost_in(steps, places, finding.per_step)
    if cost is None:
        return finding
    low, high = over_run(finding, cost)
    return replace(finding, cost_ns=(round(low), round(high)))


def interval_ns(step: Forecast, seconds: float) -> tuple[float, float]:
    """A part of the step in ns, as uncertain as the whole: from the low to the high end of the step's interval."""
    time = step.time
    return 1e9 * seconds * time.low / time.seconds, 1e9 * seconds * time.high / time.seconds


def over_run(found: AtLine | Finding, cost: tuple[float, float]) -> tuple[float, float]:
    """What costs a step so much, over all steps that have it."""
    steps = found.count / found.per_step
    return steps * cost[0], steps * cost[1]


def _sites(finding: Finding, rule: Rule) -> list[Site]:
    """Its lines that wait, an unknown one too: related ones may be where a tensor was made."""
    related = finding.related_sites if finding.related_as == "also at" or rule.both_ways else ()
    return [finding.site, *(site for site in related if site.known)]
