"""Two clocks: the host queues work and the device does it; where the host waits, both meet. Nothing here knows a Mac.

A step follows another, so some are walked through and the last one counts: a host that runs ahead does so into the
next step. Between two waits a stretch of moves takes the clocks (h, d) to (h + host, max(d + device, h + chain)), and
two stretches make one in the same way. So what a step would take without a wait needs no second walk through its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

_ROUNDS: Final = 3  # with the third, whatever lead host or device can gain is gained

StepBound = Literal[
    "nothing", "launch", "compute", "bandwidth", "host code", "waits", "copies", "CPU fallback", "loading"
]
"""What a step's time goes to: the device's work, or what the host is busy with while the device has none."""


class Move(NamedTuple):
    """What one happening does to the clocks, in seconds.

    The host runs `code` of the program, then spends `host` on what is named `busy`; the device then works for `device`
    at `works`. If it `waits`, the host goes on when the device is done, after `wait` and `after`, which is spent on
    what is named `busy`, too. `instead` is what host and device would do here, beside `code`, if nothing waited.
    """

    code: float
    host: float
    busy: StepBound
    device: float
    works: StepBound
    waits: bool = False
    wait: float = 0.0
    after: float = 0.0
    instead: tuple[float, float] = (0.0, 0.0)


class Busy(NamedTuple):
    """A time in which host or device do one thing, in seconds since the host began the step."""

    start: float
    end: float
    what: StepBound
    happening: int
    """Its place in the list of what happens."""


_Span = tuple[float, float, StepBound, int]
"""As `Busy`, which takes longer to make: a step may have a hundred thousand."""


@dataclass
class Walked:
    """A step as the clocks saw it: its time, where that goes, its time by part, and what both did when."""

    seconds: float
    shares: dict[StepBound, float]
    parts: dict[Hashable, float]
    host: list[_Span] = field(default_factory=list)
    device: list[_Span] = field(default_factory=list)


class Stretch(NamedTuple):
    """Moves in a row without a wait; or one wait at a place, where the host goes on `host` after the device is done."""

    host: float
    device: float = 0.0
    chain: float = 0.0
    place: Hashable = None
    waits: bool = False
    instead: tuple[float, float] = (0.0, 0.0)


def walk_through(moves: Sequence[Move], parts: Sequence[Hashable], found: Sequence[Stretch]) -> Walked:
    """Walk through a step that follows one like itself; `parts` names what each move's time is counted to.

    `found` are the `stretches` of the moves.
    """
    h = d = 0.0
    for _ in range(_ROUNDS - 1):
        h, d = _round(found, h, d)
    begin, origin = max(h, d), h
    walked = Walked(0.0, {}, {})
    shares, times = walked.shares, walked.parts
    host, device = walked.host, walked.device
    at = 0  # of `host`: all before it ended before the device was done last
    front = begin

    def idle(since: float, until: float) -> None:
        nonlocal at
        since = max(since, begin) - origin
        until -= origin
        while at < len(host) and host[at][1] <= since:
            at += 1
        for number in range(at, len(host)):
            start, end, what, _ = host[number]
            if start >= until:
                break
            shares[what] = shares.get(what, 0.0) + min(end, until) - max(start, since)

    for number, (move, part) in enumerate(zip(moves, parts, strict=True)):
        if move.code:
            host.append((h - origin, h + move.code - origin, "host code", number))
            h += move.code
        if move.host:
            host.append((h - origin, h + move.host - origin, move.busy, number))
            h += move.host
        if move.device:
            if h > d:
                if h > begin:
                    idle(d, h)
                d = h
            device.append((d - origin, d + move.device - origin, move.works, number))
            shares[move.works] = shares.get(move.works, 0.0) + move.device
            d += move.device
        if move.waits:
            h = max(h, d)
            if move.wait:
                host.append((h - origin, h + move.wait - origin, "waits", number))
                h += move.wait
            if move.after:
                host.append((h - origin, h + move.after - origin, move.busy, number))
                h += move.after
        now = max(h, d)
        if now > front:
            times[part] = times.get(part, 0.0) + now - front
            front = now
    if h > d:
        idle(d, h)
    walked.seconds = max(h, d) - begin
    return walked


def stretches(moves: Sequence[Move], places: Sequence[Hashable]) -> list[Stretch]:
    """The moves in as few stretches as there are waits, and as there are rows of moves between them."""
    found: list[Stretch] = []
    host = device = chain = 0.0
    for move, place in zip(moves, places, strict=True):
        host += move.code + move.host
        if move.device:
            device += move.device
            chain = max(chain, host) + move.device
        if move.waits:
            found.append(Stretch(host, device, chain))
            found.append(Stretch(move.wait + move.after, place=place, waits=True, instead=move.instead))
            host = device = chain = 0.0
    found.append(Stretch(host, device, chain))
    return found


def seconds_without(found: Sequence[Stretch], unneeded: Callable[[Hashable], bool]) -> float:
    """What a step takes in which nothing waits at these places."""
    left = [
        Stretch(it.instead[0], it.instead[1], sum(it.instead)) if it.waits and unneeded(it.place) else it
        for it in found
    ]
    h = d = before = 0.0
    for _ in range(_ROUNDS):
        before = max(h, d)
        h, d = _round(left, h, d)
    return max(h, d) - before


def _round(found: Sequence[Stretch], h: float, d: float) -> tuple[float, float]:
    for it in found:
        if it.waits:
            h = max(h, d) + it.host
        else:
            h, d = h + it.host, max(d + it.device, h + it.chain)
    return h, d
