"""Two clocks: the host queues work and the device does it; a wait brings both to the same time. Knows no Mac.

Several steps are simulated and the last one counts, because a host that runs ahead does so into the next step. Between
two waits a stretch of moves takes the clocks (h, d) to (h + host, max(d + device, h + chain)), and two stretches make
one in the same way. So the time of a step without a wait needs no second pass through its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final, Literal, NamedTuple

_ROUNDS: Final = 3  # with the third, whatever lead host or device can gain is gained

StepBound = Literal[
    "nothing", "launch", "compute", "bandwidth", "host code", "waits", "copies", "CPU fallback", "loading"
]
"""What a step's time goes to: what the device works at, or what the host is busy with and the device waits for."""


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
    """A period in which host or device do one thing, in seconds since the host began the step."""

    start: float
    end: float
    what: StepBound
    happening: int
    """Its place in the list of what happens."""


@dataclass
class Walked:
    """A step as the clocks saw it: its time, where that goes, and its time by part.

    A step's time is one chain of what host and device do, each link of which had to wait for the one before. `lead` is
    for how long the device still works for the step before when the host begins. `stood` are the moves that
    wait, by their place in the list, with how long the host stood still. At `start` both clocks begin the step.
    """

    seconds: float
    lead: float = 0.0
    stood: list[tuple[int, float]] = field(default_factory=list)
    shares: dict[StepBound, float] = field(default_factory=dict)
    parts: dict[Hashable, float] = field(default_factory=dict)
    start: tuple[float, float] = (0.0, 0.0)


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
    begin = max(h, d)
    walked = Walked(0.0, max(0.0, d - h), start=(h, d))
    links = bytearray(len(moves))
    for number, move in enumerate(moves):
        code, host, _, device, _, waits, wait, after, _ = move  # a third faster than by name: there may be a million
        h += code + host
        if device:
            if h > d:
                d = h
                links[number] = _HOST_FIRST
            d += device
        if waits:
            since = h
            if d > h:
                h = d
                links[number] |= _DEVICE_LAST
            walked.stood.append((number, h + wait - since))
            h += wait + after
    walked.seconds = max(h, d) - begin
    on_device = d > h
    # The chain is followed back from the end. Where it comes from tells on what the step before ended, and so with what
    # it is in truth left: a step's own last link is no part of a chain that goes on with the next step.
    for _ in range(_ROUNDS):
        before, walked.shares, walked.parts = on_device, {}, {}
        on_device = _chain(walked, moves, parts, links, on_device=on_device)
        if on_device == before:
            break
    return walked


_HOST_FIRST, _DEVICE_LAST = 1, 2  # the device had to wait for the host, and the host for the device


def _chain(
    walked: Walked, moves: Sequence[Move], parts: Sequence[Hashable], links: bytearray, *, on_device: bool
) -> bool:
    """Add the links of the chain that ends on the device or the host; the answer is where it begins."""
    shares, times = walked.shares, walked.parts
    for number in range(len(moves) - 1, -1, -1):
        code, host, busy, device, works, waits, wait, after, _ = moves[number]
        link, part = links[number], parts[number]
        length = 0.0
        if waits and not on_device:
            length = wait + after
            shares["waits"] = shares.get("waits", 0.0) + wait
            if after:
                shares[busy] = shares.get(busy, 0.0) + after
            on_device = bool(link & _DEVICE_LAST)
        if on_device and device:
            length += device
            shares[works] = shares.get(works, 0.0) + device
            on_device = not link & _HOST_FIRST
        if not on_device:
            length += code + host
            if code:
                shares["host code"] = shares.get("host code", 0.0) + code
            if host:
                shares[busy] = shares.get(busy, 0.0) + host
        if length:
            times[part] = times.get(part, 0.0) + length
    return on_device


def tracks(moves: Sequence[Move], start: tuple[float, float]) -> tuple[list[Busy], list[Busy]]:
    """What host and device do when, of a step that was walked through from this `start`; the host begins it at 0."""
    on_host: list[Busy] = []
    on_device: list[Busy] = []
    busy_host, busy_device, made = on_host.append, on_device.append, tuple.__new__
    h, d = 0.0, start[1] - start[0]
    for number, (code, host, busy, device, works, waits, wait, after, _) in enumerate(moves):
        if code:
            busy_host(made(Busy, (h, h + code, "host code", number)))
            h += code
        if host:
            busy_host(made(Busy, (h, h + host, busy, number)))
            h += host
        if device:
            if h > d:
                d = h
            busy_device(made(Busy, (d, d + device, works, number)))
            d += device
        if waits:
            h = max(h, d)
            if wait:
                busy_host(made(Busy, (h, h + wait, "waits", number)))
                h += wait
            if after:
                busy_host(made(Busy, (h, h + after, busy, number)))
                h += after
    return on_host, on_device


def stretches(moves: Sequence[Move], places: Sequence[Hashable]) -> list[Stretch]:
    """The moves in as few stretches as there are waits, and as there are rows of moves between them."""
    found: list[Stretch] = []
    host = device = chain = 0.0
    for (code, busy, _, work, _, waits, wait, after, instead), place in zip(moves, places, strict=True):
        host += code + busy
        if work:
            device += work
            chain = (chain if chain > host else host) + work
        if waits:
            found.append(Stretch(host, device, chain))
            found.append(Stretch(wait + after, place=place, waits=True, instead=instead))
            host = device = chain = 0.0
    found.append(Stretch(host, device, chain))
    return found


def seconds_without(
    found: Sequence[Stretch], unneeded: Callable[[Hashable], bool], gone: Callable[[Hashable], bool] = lambda _: False
) -> float:
    """The time of a step without the waits at these places, and without the work that waited if that is gone too."""
    left = [
        stretch
        if not stretch.waits or not unneeded(stretch.place)
        else Stretch(0.0)
        if gone(stretch.place)
        else Stretch(stretch.instead[0], stretch.instead[1], fsum(stretch.instead))
        for stretch in found
    ]
    h = d = before = 0.0
    for _ in range(_ROUNDS):
        before = max(h, d)
        h, d = _round(left, h, d)
    return max(h, d) - before


def _round(found: Sequence[Stretch], h: float, d: float) -> tuple[float, float]:
    for stretch in found:
        if stretch.waits:
            h = max(h, d) + stretch.host
        else:
            h, d = h + stretch.host, max(d + stretch.device, h + stretch.chain)
    return h, d
