"""The timeline of the typical step as the Mac of the recording would take it: two clocks, the host's and the GPU's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from anymps.cost import StepBound
from anymps.findings import Story, numbered
from anymps.forecast import BusySpan, Forecast, Place, PredictedTimeline, bound_words, timeline_of
from anymps.record import Phase
from anymps.report import _text as text
from anymps.report._lanes import calls_words, drawing, lane, round_, row, span
from anymps.report._predicted import mac_seconds, phase_words

# What the host does, by how it looks and what it is called; in the order of the legend.
_HOST: Final[dict[StepBound, tuple[str, str]]] = {
    "launch": ("launch", "launches operators"),
    "host code": ("program", "runs the program's own code"),
    "copies": ("carry", "copies"),
    "CPU fallback": ("fallback", "computes what fell back"),
    "loading": ("load", "loads data"),
    "waits": ("stand", "waits for the GPU"),
}


def timeline_drawing(story: Story) -> dict[str, Any] | None:
    """The predicted step on its tracks; None where no time can be predicted, and of a run on a Mac."""
    found = story.timed
    if found is None or story.run.on_mac:
        return None
    line, directory, words = timeline_of(found), story.run.directory, phase_words(story)
    length = 1e9 * line.length

    def spans(of: tuple[BusySpan, ...], look: str, name: str = "") -> list[dict[str, Any]]:
        return [_span(part, length, name or part.operator, look, directory) for part in of]

    still = "the step before: the GPU still works for it"
    before = [span(0, 1e9 * line.before, length, "the step before", "before", title=still)] if line.before else []
    lanes = (
        lane("parts", "host: phases of the step", _phases(line, length, words)),
        lane("parts", "host: what it does", [_doing(busy, length) for busy in line.host]),
        lane(
            "bars",
            f"GPU: kernels{' (pale: of the step before)' if before else ''}",
            [*before, *spans(line.device, "mps", "kernels")],
        ),
        lane(
            "bars",
            f"CPU: operators that fell back{'' if line.fallbacks else ' (none)'}",
            spans(line.fallbacks, "fallback"),
        ),
        lane("queue", f"queue: calls that the GPU has yet to do, at most {line.deepest:,}", _queue(line)),
        lane(
            "waits",
            f"host waits for the GPU{'' if line.waits else ' (never)'}",
            [_span(wait, length, _wait_name(wait.place), "wait", directory) for wait in line.waits],
        ),
    )
    legend = [look for what, look in _HOST.items() if any(busy.what == what for busy in line.host)]
    rows = list(_rows(line, directory, words))
    return drawing(lanes, length, _sentence(found, line), _caption(found, line), rows, legend)


def step_bar(story: Story) -> dict[str, Any] | None:
    """The predicted step as one bar of its phases; None where no time can be predicted."""
    found = story.timed
    seconds, names = mac_seconds(found), phase_words(story)
    length = sum(seconds.values())
    if found is None or not length:
        return None
    spans, start = [], 0.0
    for phase in seconds:
        words = f"{names[phase]} {text.percent(seconds[phase], length)}"
        if seconds[phase]:
            spans.append(span(1e9 * start, 1e9 * seconds[phase], 1e9 * length, words, f"phase p{int(phase)}"))
        start += seconds[phase]
    told = ", ".join(str(part["name"]) for part in spans)
    sentence = f"A step on an {found.mac.name}, predicted: {told}."
    return drawing([lane("parts", "phases of the step", spans)], 1e9 * length, sentence, sentence, ())


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


def _phases(line: PredictedTimeline, length: float, words: Mapping[Phase, str]) -> list[dict[str, Any]]:
    return [
        span(1e9 * start, 1e9 * (end - start), length, words[phase], f"phase p{int(phase)}")
        for phase, start, end in line.phases
    ]


def _doing(busy: BusySpan, length: float) -> dict[str, Any]:
    look, name = _HOST.get(busy.what, ("program", bound_words(busy.what)))
    words = calls_words(busy.calls) if busy.what == "launch" else []
    return span(1e9 * busy.start, 1e9 * (busy.end - busy.start), length, name, f"does {look}", *words)


def _span(busy: BusySpan, length: float, name: str, look: str, directory: str) -> dict[str, Any]:
    words = calls_words(busy.calls)
    if look == "mps":
        words += [f"most often {text.clean(busy.operator)}" if busy.calls > 1 else text.clean(busy.operator)]
        words.append(f"bound by {bound_words(busy.what)}")
    if busy.place is not None:
        words.append(_where(busy.place, directory))
    return span(1e9 * busy.start, 1e9 * (busy.end - busy.start), length, name, look, *words)


def _queue(line: PredictedTimeline) -> list[dict[str, str]]:
    """One outline of how many calls the GPU has yet to do."""
    points = [
        f"L{round_(1000 * at / line.length)} {round_(24 - 23 * depth / line.deepest)}" for at, depth in line.queue
    ]
    title = f"the GPU is at most {text.plural(line.deepest, 'call')} behind the host"
    last = round_(1000 * line.queue[-1][0] / line.length) if line.queue else 0
    return [{"path": f"M0 24{''.join(points)}L{last} 24Z", "title": title}] if points else []


def _rows(line: PredictedTimeline, directory: str, words: Mapping[Phase, str]) -> Iterator[dict[str, str]]:
    """Phases, fallbacks and waits in the order of time."""
    rows = [
        *((start, end, "host", words[phase], "", 1) for phase, start, end in line.phases),
        *(
            (fallback.start, fallback.end, "CPU", fallback.operator, _where(fallback.place, directory), fallback.calls)
            for fallback in line.fallbacks
        ),
        *(
            (wait.start, wait.end, "wait", _wait_name(wait.place), _where(wait.place, directory), wait.calls)
            for wait in line.waits
        ),
    ]
    for start, end, track, what, where, calls in sorted(rows, key=lambda entry: entry[0]):
        yield row(1e9 * start, 1e9 * (end - start), track, text.clean(what), where, calls)


def _wait_name(place: Place | None) -> str:
    return place.wait.label if place is not None else "wait"


def _where(place: Place | None, directory: str) -> str:
    if place is None or not place.file:
        return "an unknown line"
    return numbered(text.module(place.file, directory), place.line)
