"""The predicted time of the typical step, as reports show it, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from anymps._text import duration, estimate
from anymps.findings import Story
from anymps.forecast import Forecast
from anymps.record import Phase, StepTable
from anymps.report._text import percent

ON_MAC = "on the Mac"
"""The column of the step table with the Mac's time."""

PHASES: Final = (*list(Phase)[1:], Phase.OTHER)
"""In a step's own order; `other` comes last."""

_BACKWARD: Final = re.compile(r"(?:\bscale\((\w+)\)|\b(\w+)(?:\[[^\]]{0,40}\])?)\.backward\((?:\)|\w+=)")
_NAMED: Final = 3  # phases in a line
_LEAST: Final = 0.1  # of a step: what a phase takes that is named


def phase_words(*stories: Story) -> dict[Phase, str]:
    """What people read of each phase: where a step reads values, `loss read` only if all of them are losses.

    A loss is what `backward()` is called on, or has that word in its line.
    """
    lines = (line.source for story in stories for line in story.lines)
    names = [found[1] or found[2] for line in lines for found in _BACKWARD.finditer(line)]
    loss = re.compile("|".join(("loss", *(rf"\b{name}\b" for name in names))), re.IGNORECASE)
    waits = [wait for story in stories for wait in story.wait_calls if Phase.LOSS_READ in wait.phases and wait.steps]
    losses = bool(waits) and all(loss.search(wait.site.source) for wait in waits)
    return {phase: "value read" if phase is Phase.LOSS_READ and not losses else phase.label for phase in Phase}


def predicted_sentence(story: Story) -> str:
    """The prediction in words, or why there is none; the empty text for a run without steps."""
    if loops := story.loop_forecasts:
        return " ".join(f"In loop {number} of {len(loops)}, {_told(found)}" for number, found in enumerate(loops, 1))
    found = story.forecast
    return found.sentence if found is not None else why_no_prediction(story.step_table, story.no_forecast)


def _told(found: Forecast | None) -> str:
    sentence = found.sentence if found is not None else "No time can be predicted for a step."
    return f"{sentence[0].lower()}{sentence[1:]}"


def why_no_prediction(table: StepTable, why: str) -> str:
    """Why there is no prediction, in one sentence; empty where there is one, and for a run without work in steps."""
    return why if any(share.on_mps or share.on_cpu or share.waits for share in table.typical) else ""


def predicted_in_short(story: Story) -> str:
    """`A step: about 2.75 ms (1.47 to 5.35 ms), bound by launches.`, or why its time is not to be told.

    Another release of torch than that of the run is named. The empty text where too little is known of it.
    """
    if loops := story.loop_forecasts:
        return " ".join(filter(None, (_in_short(found, f" of loop {at}") for at, found in enumerate(loops, 1))))
    return _in_short(story.forecast)


def _in_short(found: Forecast | None, of: str = "") -> str:
    if found is None or found.no_time:
        return found.no_time if found is not None else ""
    time = found.time
    about, span = estimate(time.seconds, time.low, time.high)
    more = f"{found.cpu_sentence}{found.busy_sentence}"
    step = f" with torch {found.torch}" if found.made_by else ""
    return f"A step{of}{step}: about {about} ({span}), bound by {found.bound}.{more}"


def mac_seconds(found: Forecast | None) -> dict[Phase, float]:
    """What each phase of the typical step takes on the Mac; empty where none can be told."""
    return {} if found is None else {phase: found.time.parts.get(phase, 0.0) for phase in PHASES}


def time_on_mac(story: Story) -> str:
    """`Time on the Mac: 41 % loss read · 41 % move · 18 % rest`; empty where none can be told."""
    seconds, words = mac_seconds(story.timed), phase_words(story)
    whole = sum(seconds.values())
    largest = sorted(seconds.items(), key=lambda part: -part[1])[:_NAMED]
    named = [(words[phase], part) for phase, part in largest if part >= _LEAST * whole and phase is not Phase.OTHER]
    if not named:
        return ""
    if rest := whole - sum(part for _, part in named):
        named.append(("rest", rest))
    return f"Time on the Mac: {' · '.join(f'{percent(part, whole)} {label}' for label, part in named)}"


def mac_times(found: Forecast | None) -> Callable[[Phase | None], str]:
    """What a phase of the typical step, or all of it, takes on the Mac, as a cell; empty where none can be told."""
    seconds = mac_seconds(found)
    return lambda phase: duration(1e9 * (sum(seconds.values()) if phase is None else seconds.get(phase, 0.0)))


def standing_seconds(found: Forecast | None) -> dict[tuple[str, int], float]:
    """For how long the host is idle at each line of the typical step on the Mac; empty where none can be told."""
    seconds: dict[tuple[str, int], float] = {}
    for wait in found.waits if found is not None else ():
        at = wait.place.file, wait.place.line
        seconds[at] = seconds.get(at, 0.0) + wait.stands
    return seconds


def predicted_object(found: Forecast | None) -> dict[str, object] | None:
    """The prediction for programs."""
    if found is None:
        return None
    time, told = found.time, not found.no_time
    return {
        "mac": found.mac.name,
        "step": found.step,
        "device_seconds": time.device,
        "device_seconds_low": time.device_low,
        "device_seconds_high": time.device_high,
        "host_seconds": time.host if told else None,
        "wait_seconds": time.all_waits,
        "seconds": time.seconds if told else None,
        "seconds_low": time.low if told else None,
        "seconds_high": time.high if told else None,
        "cpu_seconds": found.on_cpu,
        "busy": found.busy,
        "no_time": found.no_time,
        "bound": time.bound,
        "shares": [{"what": what, "seconds": seconds} for what, seconds in time.shares if told],
        "phases": [{"phase": phase.label, "seconds": time.parts.get(phase, 0.0)} for phase in Phase if told],
        "waits": [
            {
                "file": wait.place.file or None,
                "line": wait.place.line,
                "wait": wait.place.wait.label,
                "waits": wait.waits,
                "seconds": wait.seconds,
                "host_idle_seconds": wait.stands,
            }
            for wait in found.waits
        ],
        "graphs": time.graphs,
        "calls": time.calls,
        "predicted_calls": time.predicted,
        "left_out": [{"reason": reason, "calls": calls} for reason, calls in time.left_out],
    }
