"""The typical step as the Mac would take it: a bar of its phases, and host and GPU on a timeline.

Horizontal places are in per cent of the step, heights in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from anymps._text import duration_short
from anymps.cost import StepBound
from anymps.findings import Story, numbered
from anymps.forecast import BusySpan, Forecast, PredictedTimeline, WaitingLine, bound_words, timeline_of
from anymps.record import Phase
from anymps.report import _text as text
from anymps.report._predicted import mac_seconds, phase_words
from anymps.report.document import Column, Drawing, Form, Prose, Section, Table

_Lane = tuple[Literal["parts", "bars", "queue", "waits"], str, Sequence[Mapping[str, Any]]]
"""Kind, title and spans: `parts` hold their names, `bars` lie on a rail, `waits` have marks, a `queue` an outline."""

_FIRST: Final = 14  # the base line of the first title; the axis begins below it
_HEIGHTS: Final = {"parts": 58, "bars": 50, "queue": 50, "waits": 60}
_TICKS: Final = 5  # parts of an axis at most
_MOST_ROWS: Final = 200  # of the table
_NARROWEST: Final = 0.05  # per cent: about half a pixel
_ROWS: Final = (
    Column("from", "number"),
    Column("for", "number"),
    Column("track", left_out=1),
    Column("what"),
    Column("where", "path"),
)
# What the host does, by how it looks and what it is called; in the order of the legend.
_HOST: Final[dict[StepBound, tuple[str, str]]] = {
    "launch": ("launch", "launches operators"),
    "host code": ("program", "runs the program's own code"),
    "copies": ("carry", "copies"),
    "CPU fallback": ("fallback", "computes what fell back"),
    "loading": ("load", "loads data"),
    "waits": ("stand", "waits for the GPU"),
}


def time_section(story: Story) -> Iterator[Section]:
    """The predicted step as one bar of its phases; nothing where no time can be predicted."""
    found, names = story.timed, phase_words(story)
    seconds = mac_seconds(found)
    length = sum(seconds.values())
    if found is None or not length:
        return
    spans, start = [], 0.0
    for phase, part in seconds.items():
        words = f"{names[phase]} {text.percent(part, length)}"
        if part:
            spans.append(_span(start, start + part, length, words, f"phase p{int(phase)}"))
        start += part
    told = ", ".join(str(part["name"]) for part in spans)
    sentence = f"A step on an {found.mac.name}, predicted: {told}."
    bar = _drawing([("parts", "phases of the step", spans)], length, sentence, sentence)
    drawn = Drawing("timeline_drawing", bar)
    yield Section("time", "Where the time goes on the Mac", (drawn,), "Time", folded=False, forms=Form.PAGE)


def timeline_section(story: Story) -> Iterator[Section]:
    """The predicted step on its tracks; nothing where no time can be predicted, and of a run on a Mac."""
    found = story.timed
    if found is None or story.run.on_mac:
        return
    line, directory, words = timeline_of(found), story.run.directory, phase_words(story)
    sentence = _sentence(found, line)
    legend = [look for what, look in _HOST.items() if any(busy.what == what for busy in line.host)]
    label = f"{sentence} The table below has the same numbers."
    drawn = _drawing(_lanes(line, directory, words), line.length, label, _caption(found, line), legend)
    rows = tuple(_rows(line, directory, words))
    left = len(rows) - _MOST_ROWS
    table = Table(
        "spans",
        _ROWS,
        rows[:_MOST_ROWS],
        caption="Phases and waits of this step, in the order of time",
        rest=f"{left} more are only drawn." if left > 0 else "",
        head=3,
        fold="The same as a table",
    )
    blocks = (Prose((sentence,)), Drawing("timeline_drawing", drawn), table)
    yield Section("timeline", "Timeline of host and device", blocks, "Timeline", folded=False, forms=Form.PAGE)


def _sentence(found: Forecast, line: PredictedTimeline) -> str:
    waits = sum(wait.calls for wait in line.waits)
    on_cpu = sum(fallback.calls for fallback in line.fallbacks)
    fell_back = f", {text.plural(on_cpu, 'operator call')} on the CPU" if on_cpu else ""
    return (
        f"A typical step on an {found.mac.name}, predicted: {text.duration(1e9 * found.time.seconds)}, bound by "
        f"{found.bound}. {text.plural(waits, 'wait')}{fell_back}."
    )


def _caption(found: Forecast, line: PredictedTimeline) -> str:
    earlier = (
        " The host begins while the GPU still works for the step before, so both ends overlap with other steps."
        if line.before
        else ""
    )
    return (
        f"Times are predicted for the {found.mac.name}, not measured here.{earlier} "
        "Calls closer than a thousandth of the step are drawn as one."
    )


def _lanes(line: PredictedTimeline, directory: str, words: Mapping[Phase, str]) -> Iterator[_Lane]:
    def spans(of: tuple[BusySpan, ...], look: str, name: str = "") -> list[dict[str, Any]]:
        return [_busy(part, line.length, name or part.operator, look, directory) for part in of]

    still = "the step before: the GPU still works for it"
    before = [_span(0, line.before, line.length, "the step before", "before", title=still)] if line.before else []
    phases = [_span(start, end, line.length, words[phase], f"phase p{int(phase)}") for phase, start, end in line.phases]
    yield "parts", "host: phases of the step", phases
    yield "parts", "host: what it does", [_doing(busy, line.length) for busy in line.host]
    pale = " (pale: of the step before)" if before else ""
    yield "bars", f"GPU: kernels{pale}", [*before, *spans(line.device, "mps", "kernels")]
    none = "" if line.fallbacks else " (none)"
    yield "bars", f"CPU: operators that fell back{none}", spans(line.fallbacks, "fallback")
    yield "queue", f"queue: calls that the GPU has yet to do, at most {line.deepest:,}", _queue(line)
    waits = [_busy(wait, line.length, _wait_name(wait.place), "wait", directory) for wait in line.waits]
    yield "waits", f"host waits for the GPU{'' if waits else ' (never)'}", waits


def _doing(busy: BusySpan, length: float) -> dict[str, Any]:
    look, name = _HOST.get(busy.what, ("program", bound_words(busy.what)))
    words = _calls(busy) if busy.what == "launch" else []
    return _span(busy.start, busy.end, length, name, f"does {look}", *words)


def _busy(busy: BusySpan, length: float, name: str, look: str, directory: str) -> dict[str, Any]:
    words = _calls(busy)
    if look == "mps":
        words += [f"most often {text.clean(busy.operator)}" if busy.calls > 1 else text.clean(busy.operator)]
        words.append(f"bound by {bound_words(busy.what)}")
    if busy.place is not None:
        words.append(_where(busy.place, directory))
    return _span(busy.start, busy.end, length, name, look, *words)


def _calls(busy: BusySpan) -> list[str]:
    return [text.plural(busy.calls, "call")] if busy.calls > 1 else []


def _queue(line: PredictedTimeline) -> list[dict[str, str]]:
    """One outline of how many calls the GPU has yet to do."""
    points = [
        f"L{round(1000 * at / line.length, 3)} {round(24 - 23 * depth / line.deepest, 3)}" for at, depth in line.queue
    ]
    title = f"the GPU is at most {text.plural(line.deepest, 'call')} behind the host"
    last = round(1000 * line.queue[-1][0] / line.length, 3) if line.queue else 0
    return [{"path": f"M0 24{''.join(points)}L{last} 24Z", "title": title}] if points else []


def _rows(line: PredictedTimeline, directory: str, words: Mapping[Phase, str]) -> Iterator[tuple[str, ...]]:
    """Phases, fallbacks and waits in the order of time; of several calls each names one."""
    rows = [(start, end, "host", words[phase], "", 1) for phase, start, end in line.phases]
    for track, spans in (("CPU", line.fallbacks), ("wait", line.waits)):
        for one in spans:
            what = one.operator if track == "CPU" else _wait_name(one.place)
            rows.append((one.start, one.end, track, what, _where(one.place, directory), one.calls))
    for start, end, track, what, where, calls in sorted(rows, key=lambda row: row[0]):
        told = text.clean(what) + (f" and more, {calls} calls" if calls > 1 else "")
        yield text.duration(1e9 * start) or "0", text.duration(1e9 * (end - start)) or "0", track, told, where


def _wait_name(place: WaitingLine | None) -> str:
    return place.wait.label if place is not None else "wait"


def _where(place: WaitingLine | None, directory: str) -> str:
    if place is None or not place.file:
        return "an unknown line"
    return numbered(text.module(place.file, directory), place.line)


def _span(start: float, end: float, whole: float, name: str, look: str, *words: str, title: str = "") -> dict[str, Any]:
    """A span of a drawing that is `whole` seconds long, with the name that it has room for.

    Where a mouse rests on it, it shows a `title`: by default its name, its length and the `words`.
    """
    length = end - start
    return {
        "at": round(min(100 * start / whole, 100 - _NARROWEST), 3),
        "width": round(max(100 * length / whole, _NARROWEST), 3),
        "name": name,
        "label": _label(name, 100 * length / whole),
        "look": look,
        "title": title or ", ".join([text.clean(name), text.duration(1e9 * length) or "0 ns", *words]),
    }


def _label(name: str, width: float) -> str:
    """How much room the name of a span has, in a drawing that is `width` per cent of its own wide."""
    # 8 pixels a character and 6 before them, on a drawing of 290, 560 or 920 pixels: a phone, a tablet, a desk.
    pixels = 8 * len(name) + 6
    for kind, narrowest in (("label", 290), ("label mid", 560), ("label wide", 920)):
        if width * narrowest >= 100 * pixels:
            return kind
    return ""


def _drawing(
    lanes: Iterable[_Lane],
    length: float,
    label: str,
    caption: str,
    legend: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Lanes from top to bottom above a time axis; the legend says what the looks of the host's spans mean."""
    placed, top = [], _FIRST
    for kind, title, spans in lanes:
        placed.append({"kind": kind, "title": title, "spans": spans, "y": top})
        top += _HEIGHTS[kind]
    label = f"Tracks over time. {label}"
    ticks = _ticks(1e9 * length)
    return {"label": label, "caption": caption, "ticks": ticks, "lanes": placed, "legend": legend, "height": top}


def _ticks(length: float) -> list[dict[str, Any]]:
    """Marks at round times: as many as a narrow screen has room for."""
    rough = length / _TICKS
    power = 10 ** math.floor(math.log10(rough))
    each = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [
        {"at": round(100 * part * each / length, 3), "label": duration_short(part * each)}
        for part in range(math.floor(length / each) + 1)
    ]
