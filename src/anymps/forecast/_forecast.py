"""Predicts the typical step of a recording on a Mac, or says why it cannot."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import fsum
from typing import Final, cast

from anymps._errors import CostError
from anymps._text import duration, estimate, listed, percent
from anymps.cost import Happening, StepBound, WaitCost, WalkedStep, compile_time, walk_step
from anymps.forecast._happenings import WaitingLine, call_of, happenings, speeds_of
from anymps.mac import Mac
from anymps.record import Phase, Recording, Signature, Step, StepSum

BUSY: Final = 0.05
"""From this share of a step's time on, a report says that the machine was busy: less hardly moves the interval."""

_MOST_NAMED: Final = 3
"""Operators without a predicted time that the reason names."""

_WORDS: Final[dict[StepBound, str]] = {
    "launch": "launches",
    "host code": "the program's own code",
    "CPU fallback": "CPU fallbacks",
    "loading": "data loading",
}


def bound_words(bound: StepBound) -> str:
    """What binds a step, as it is said: `launches`, `compute`, `the program's own code`."""
    return _WORDS.get(bound, bound)


@dataclass(frozen=True)
class Forecast:
    """What the typical step, number `step`, would take on a Mac with a release of torch.

    `no_time` is empty, or says in one sentence why `time.seconds` should not be shown: memory or data loading decide,
    or there was only one step. The times of the GPU hold even then. `workers` is True if worker processes load the
    data; loading then counts only as far as the program waited for it.
    """

    mac: Mac
    torch: str
    step: int
    time: WalkedStep
    no_time: str = ""
    workers: bool = False
    happenings: Sequence[Happening] = field(default=(), repr=False)
    """What the tracks name by its place."""
    on_cpu: float | None = None
    """What the step would take on that Mac's CPU, in seconds, where launches bind it and the CPU would be faster."""
    busy: float = 0.0
    """The share of its own code's time in which the program was kept from running on the recording machine."""
    made_by: str = ""
    """The release of torch that made the recording, where `torch` is another one."""

    @property
    def waits(self) -> tuple[WaitCost[WaitingLine], ...]:
        """What the waits at each line and of each kind cost a step, the costliest first."""
        placed = tuple(wait for wait in self.time.waits if isinstance(wait.place, WaitingLine))
        return cast("tuple[WaitCost[WaitingLine], ...]", placed)

    def graphs_of(self, signature: Signature) -> int:
        """How many graphs MPSGraph compiles for a call the first time."""
        return walk_step([Happening("kernel", call_of(signature))], self.mac, self.torch).graphs

    def compiling(self, graphs: int) -> float:
        """How many seconds the Mac takes to compile so many graphs."""
        return compile_time(max(0, graphs), self.mac)[0]

    @property
    def bound(self) -> str:
        """What binds the step, as it is said: `launches`, `compute`, `the program's own code`."""
        return bound_words(self.time.bound)

    @property
    def sentence(self) -> str:
        """`A step would take about 12.3 ms on an M2 16GB (6.77 to 23.4 ms), bound by launches.`"""
        time, mac = self.time, self.mac.name
        if self.no_time:
            about, span = estimate(time.device, time.device_low, time.device_high)
            busy = f"A step would keep the GPU of an {mac} busy for about {about} ({span})."
            return f"{self.no_time} {busy}"
        about, span = estimate(time.seconds, time.low, time.high)
        takes = f"A step would take about {about} on an {mac} ({span})"
        keep_up = ", if the loader's workers keep up" if self.workers else ""
        more = f"{self.cpu_sentence}{self.release_sentence}{self.busy_sentence}"
        return f"{takes}, bound by {self.bound}{keep_up}.{more}"

    @property
    def release_sentence(self) -> str:
        """` These are the times of torch 2.11, for ...`; empty where the release is that of the recording."""
        if not self.made_by:
            return ""
        made_by = self.made_by.partition("+")[0]
        return f" These are the times of torch {self.torch}, for the calls that torch {made_by} makes here."

    @property
    def busy_sentence(self) -> str:
        """` This machine was busy: ...`, with the share of time that is subtracted; empty where it hardly was."""
        shares = dict(self.time.shares)
        host = fsum(shares.get(what, 0.0) for what in ("host code", "loading", "CPU fallback"))
        if self.busy * host < BUSY * fsum(shares.values()) or not host:
            return ""
        return (
            f" This machine was busy: for {percent(self.busy)} of the time in its own code, the program waited "
            "for a core. That time is subtracted, and the interval is wider."
        )

    @property
    def cpu_sentence(self) -> str:
        """` That Mac's CPU alone would take about 1.2 ms.`; empty where the GPU is as fast, or that cannot be told."""
        return "" if self.on_cpu is None else f" That Mac's CPU alone would take about {duration(1e9 * self.on_cpu)}."


_Asked = tuple[Mac | None, bool, str, Step | None]
_made: weakref.WeakKeyDictionary[Recording, dict[_Asked, Forecast | str]] = weakref.WeakKeyDictionary()


def forecast(
    recording: Recording,
    mac: Mac | None = None,
    *,
    alone: bool = False,
    torch: str = "",
    step: Step | None = None,
) -> Forecast:
    """The predicted time of a recording's typical step on a Mac; the default is the Mac that the recording names.

    Or that of another complete `step`.

    With `alone`, the host waits for the device after each step, as it does when steps are timed one by one. `torch` is
    a release; the default is that of the recording. With another one, the calls stay those of the recording's release.

    Raises CostError, in one line, if nothing can be predicted: there is no complete step, the Mac or torch is unknown,
    the GPU has no work, or less than nine tenths of the calls have a predicted time.
    """
    answers = _made.setdefault(recording, {})
    key = mac, alone, torch, step
    known = answers.get(key)
    if known is None:
        try:
            known = _forecast(recording, mac, torch, step, alone=alone)
        except CostError as error:
            known = str(error)
        answers[key] = known
    if isinstance(known, str):
        raise CostError(known)
    return known


def try_forecast(recording: Recording, step: Step | None = None) -> Forecast | None:
    """As `forecast`, and None where there is no ground."""
    try:
        return forecast(recording, step=step)
    except CostError:
        return None


def loop_forecasts(recording: Recording) -> tuple[Forecast | None, ...]:
    """A typical step of each loop of a script that trains several times, one after the other; empty with one loop."""
    counts = recording.lines_by_loop.steps
    if len(counts) < 2 or not recording.lines_by_loop.whole:
        return ()
    steps, sums = {step.step: step for step in recording.steps()}, iter(recording.step_sums())
    loops = [list(islice(sums, counts[number])) for number in sorted(counts)]
    return tuple(try_forecast(recording, step=steps[_typical(loop).step]) for loop in loops)


def _typical(loop: Sequence[StepSum]) -> StepSum:
    """The step of median length among those that wait and fall back as most do, without the first one."""
    later = loop[1:] or loop
    usual = Counter((step.waits, step.on_cpu) for step in later).most_common(1)[0][0]
    alike = [step for step in later if (step.waits, step.on_cpu) == usual]
    return sorted(alike, key=lambda step: step.duration_ns)[(len(alike) - 1) // 2]


def seconds_saved(
    recording: Recording, change: Callable[[Sequence[Happening]], Sequence[Happening] | None]
) -> float | None:
    """By how many seconds the typical step would be shorter on the recording's Mac with what `change` makes of it.

    None where that is nothing known. Raises CostError as `forecast` does.
    """
    before = forecast(recording)
    instead = change(before.happenings)
    if instead is None:
        return None
    return max(0.0, before.time.seconds - walk_step(instead, before.mac, before.torch).seconds)


def why_no_forecast(recording: Recording) -> str:
    """In one sentence why there is none for the recording's own Mac; the empty text where there is one."""
    try:
        forecast(recording)
    except CostError as error:
        reason = error.reason
        return f"{reason[:1].upper()}{reason[1:]}."
    return ""


def _forecast(recording: Recording, mac: Mac | None, torch: str, typical: Step | None, *, alone: bool) -> Forecast:
    named = recording.run.known_mac
    mac = mac or named
    if mac is None:
        raise CostError("anymps: no time can be predicted: the recording names no known Mac")
    made_by = recording.run.torch_version
    torch = torch or recording.run.times_of or made_by
    if not torch:
        raise CostError("anymps: no time can be predicted: the recording does not say which torch made it")
    step = typical or recording.typical_step()
    if step is None:
        raise CostError("anymps: no time can be predicted: the recording holds no complete step")
    speeds = speeds_of(recording)
    found, busy = happenings(recording, step, speeds)
    if alone:
        found = [*found, Happening("wait", waits=True, part=Phase.OTHER)]
    time = walk_step(found, mac, torch, busy=busy)
    if not time.covered:
        raise CostError(
            f"anymps: no time can be predicted for this Mac: only {time.predicted:,} of the step's {time.calls:,} "
            f"calls have a predicted time (missing: {_missing(time)})"
        )
    if not time.device:
        raise CostError("anymps: no time can be predicted for this Mac: nothing in the step works on its GPU")
    workers = any(noted.facts.get("workers") for noted in recording.noted("loader"))
    no_time = _no_time(recording, mac, time)
    on_cpu = _on_cpu(recording, step, mac, speeds.code)
    faster = not no_time and time.bound == "launch" and on_cpu is not None and on_cpu < time.low
    return Forecast(
        mac,
        torch,
        step.step,
        time,
        no_time,
        workers,
        found,
        on_cpu if faster else None,
        busy,
        made_by if torch != made_by else "",
    )


def _on_cpu(recording: Recording, typical: Step, mac: Mac, speed: float) -> float | None:
    """The step as this machine's CPU has computed it, in the time of the Mac's; None where something else computed.

    The shortest of the steps but the first one that wait and fall back as often as the typical one, as what is longer
    was held up; others do other work, such as an evaluation. For small operators only: of large ones the number of
    cores decides, and how they are built.
    """
    if not recording.run.virtual or recording.run.real_calls or not mac.cpu_speed:
        return None
    steps = recording.step_sums()
    alike = {(step.waits, step.on_cpu) for step in steps if step.step == typical.step}
    spans = [step.duration_ns for step in steps[1:] if (step.waits, step.on_cpu) in alike]
    return 1e-9 * min(spans) * speed / mac.cpu_speed if spans else None


def _missing(time: WalkedStep) -> str:
    """`3 of aten::x and 2 of aten::y`: the operators with most calls by name, the others as a number."""
    parts = [f"{calls:,} of {operator}" for operator, calls in time.unpredicted[:_MOST_NAMED]]
    if others := sum(calls for _, calls in time.unpredicted[_MOST_NAMED:]):
        parts.append(f"{others:,} of others")
    return listed(parts)


def _no_time(recording: Recording, mac: Mac, time: WalkedStep) -> str:
    story = recording.memory_story
    if story.peak is not None and story.peak_reserved > mac.recommended_max_memory:
        return "No time is predicted for a step: its memory is above the Mac's working set, so macOS pages."
    if sum(step.complete for step in recording.steps()) == 1:
        return "No time is predicted from a single step, because it includes all that came before it, such as imports."
    if time.bound == "loading":
        # As the step table has it.
        loading = fsum(share.time_ns for share in recording.step_table().typical if share.phase is Phase.BATCH)
        return f"Data loading would limit a step, so no time is predicted: it took {duration(loading)} here."
    return ""
