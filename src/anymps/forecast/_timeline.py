"""What host and GPU do when in a predicted step, in spans for a drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from anymps.cost import Busy, Happening, StepBound
from anymps.forecast._forecast import Forecast
from anymps.forecast._happenings import WaitingLine
from anymps.record import Phase

_POINTS: Final = 400  # of the queue's curve


@dataclass(frozen=True)
class BusySpan:
    """A time in which host or GPU are busy, in seconds since the host began the step.

    `what` most of it goes to, `calls` made in it, the `operator` that most of them are, and of waits and fallbacks the
    `place` of the longest one.
    """

    start: float
    end: float
    what: StepBound
    calls: int
    operator: str = ""
    place: WaitingLine | None = None


@dataclass(frozen=True)
class PredictedTimeline:
    """A predicted step on its tracks. Times in seconds since the host began it; it ends when both are done.

    `phases` are the program's, `host` is what the host is busy with, a time in which it is idle being `waits`;
    `device` is when the GPU works for this step, and `before` is until when it still works for the one before.
    `queue` are the calls that the GPU has yet to do, as points of time and number, and `deepest` is most of them.
    """

    length: float
    before: float
    phases: tuple[tuple[Phase, float, float], ...]
    host: tuple[BusySpan, ...]
    device: tuple[BusySpan, ...]
    fallbacks: tuple[BusySpan, ...]
    waits: tuple[BusySpan, ...]
    queue: tuple[tuple[float, int], ...]
    deepest: int


def timeline_of(found: Forecast, resolution: int = 1000) -> PredictedTimeline:
    """The tracks of a forecast, in spans no finer than a `resolution`-th of the step."""
    host, device = found.time.host_track, found.time.device_track
    length = max((track[-1].end for track in (host, device) if track), default=0.0)
    gap = length / resolution
    whole = list(_without_pauses(host, found.happenings))
    waits, queue = _waits(whole, found.happenings), _queue(host, device, length)
    fallbacks = [busy for busy in host if busy.what == "CPU fallback"]
    return PredictedTimeline(
        length=length,
        before=found.time.lead,
        phases=tuple(_phases(host, found.happenings)),
        host=tuple(_strongest(whole, found.happenings, length, resolution)),
        device=tuple(_joined(device, found.happenings, gap)),
        fallbacks=tuple(_joined(fallbacks, found.happenings, gap)),
        waits=tuple(_joined(waits, found.happenings, gap)),
        queue=tuple(queue),
        deepest=max((depth for _, depth in queue), default=0),
    )


def _without_pauses(host: Sequence[Busy], happenings: Sequence[Happening]) -> Iterator[Busy]:
    """The host's track with the times in which it is idle as waits of what it waits for."""
    clock = 0.0
    for busy in host:
        if busy.start > clock and happenings[busy.happening].waits:
            yield Busy(clock, busy.start, "waits", busy.happening)
        yield busy
        clock = busy.end


def _waits(host: Iterable[Busy], happenings: Sequence[Happening]) -> list[Busy]:
    """Each wait in one piece, from when the host is idle until it goes on."""
    found: list[Busy] = []
    for busy in host:
        if busy.what != "waits" or not happenings[busy.happening].waits:
            continue
        if found and found[-1].happening == busy.happening:
            found[-1] = found[-1]._replace(end=busy.end)
        else:
            found.append(busy)
    return found


def _phases(host: Sequence[Busy], happenings: Sequence[Happening]) -> Iterator[tuple[Phase, float, float]]:
    """Phases one after the other: the time before a happening belongs to its phase."""
    clock = 0.0
    for part, spans in groupby(host, key=lambda busy: happenings[busy.happening].part):
        *_, last = spans
        if last.end > clock and isinstance(part, Phase):
            yield part, clock, last.end
            clock = last.end


def _strongest(
    host: Sequence[Busy], happenings: Sequence[Happening], length: float, resolution: int
) -> Iterator[BusySpan]:
    """The host's time cut into equal parts, each named by what most of it goes to; equal neighbours are one span."""
    cells: list[dict[StepBound, float]] = [{} for _ in range(resolution)]
    calls: list[int] = [0] * resolution
    scale, latest = resolution / length if length else 0.0, resolution - 1
    for start, end, what, number in host:  # most lie in one part, and a step may have a million
        first, last = int(start * scale), int(end * scale)
        first, last = first if first < latest else latest, last if last < latest else latest
        if what != "host code" and happenings[number].call is not None:
            calls[first] += 1
        if first == last:
            cells[first][what] = cells[first].get(what, 0.0) + (end - start)
            continue
        for cell in range(first, last + 1):
            inside = min(end, (cell + 1) / scale) - max(start, cell / scale)
            cells[cell][what] = cells[cell].get(what, 0.0) + inside
    named = [
        (max(cell.items(), key=lambda share: share[1])[0] if cell else None, place) for place, cell in enumerate(cells)
    ]
    for what, group in groupby(named, key=lambda pair: pair[0]):
        if what is not None:
            places = [place for _, place in group]
            number = sum(calls[places[0] : places[-1] + 1])
            yield BusySpan(places[0] * length / resolution, (places[-1] + 1) * length / resolution, what, number)


def _joined(spans: Sequence[Busy], happenings: Sequence[Happening], gap: float) -> Iterator[BusySpan]:
    """Spans that lie no more than `gap` apart, joined; named by the longest one and by the most frequent operator."""
    group: list[Busy] = []
    for span in spans:
        if group and span.start > group[-1].end + gap:
            yield _span(group, happenings)
            group = []
        group.append(span)
    if group:
        yield _span(group, happenings)


def _span(group: Sequence[Busy], happenings: Sequence[Happening]) -> BusySpan:
    seconds: Counter[StepBound] = Counter()
    operators: Counter[str] = Counter()
    for span in group:
        seconds[span.what] += span.end - span.start  # type: ignore[assignment]
        call = happenings[span.happening].call
        operators[call.operator if call is not None else ""] += 1
    place = happenings[max(group, key=lambda span: span.end - span.start).happening].place
    (what, _), (operator, _) = seconds.most_common(1)[0], operators.most_common(1)[0]
    number = len({span.happening for span in group})
    return BusySpan(
        group[0].start, group[-1].end, what, number, operator, place if isinstance(place, WaitingLine) else None
    )


def _queue(host: Sequence[Busy], device: Sequence[Busy], length: float) -> list[tuple[float, int]]:
    """How many of the step's calls are queued or worked at, at no more points than a drawing has.

    Each point is the first of the highest among its neighbours.
    """
    dispatched = {number: end for _, end, what, number in host if what == "launch"}
    changes = [(dispatched.get(number, start), 1) for start, _, _, number in device]
    changes += [(end, -1) for _, end, _, _ in device]  # two rows in order, which sort in no time
    changes.sort()
    found: list[tuple[float, int]] = []
    depth, cell, best = 0, -1, (0.0, 0)
    for at, change in changes:
        depth += change
        here = int(at / length * _POINTS)
        if here != cell:
            if cell >= 0:
                found.append(best)
            cell, best = here, (at, depth)
        elif depth > best[1]:
            best = at, depth
    if changes:
        found.append(best)
    return found
